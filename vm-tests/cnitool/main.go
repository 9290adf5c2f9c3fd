// Command cni-gc runs libcni's garbage collection with a list of the attachments that are still
// valid, as container runtimes do. cnitool has no such list.
//
//	cni-gc NETWORK [CONTAINER/IFNAME...]
//
// NETCONFPATH is the folder of network configurations, CNI_PATH that of the plugins.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("usage: cni-gc NETWORK [CONTAINER/IFNAME...]")
	}
	list, err := libcni.LoadNetworkConf(os.Getenv("NETCONFPATH"), words[0])
	if err != nil {
		return err
	}
	// Not nil: an empty list says that nothing is valid, no list says nothing.
	valid := []types.GCAttachment{}
	for _, word := range words[1:] {
		container, ifname, found := strings.Cut(word, "/")
		if !found {
			return fmt.Errorf("%q is not CONTAINER/IFNAME", word)
		}
		valid = append(valid, types.GCAttachment{ContainerID: container, IfName: ifname})
	}
	plugins := filepath.SplitList(os.Getenv("CNI_PATH"))
	args := &libcni.GCArgs{ValidAttachments: valid}
	return libcni.NewCNIConfig(plugins, nil).GCNetworkList(context.Background(), list, args)
}
