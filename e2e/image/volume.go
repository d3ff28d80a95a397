package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// volume makes or removes the folder of a volume, with the arguments that local-path-provisioner
// gives to the pods in which it does so.
func volume(args []string) error {
	flags := flag.NewFlagSet("volume", flag.ContinueOnError)
	action := flags.String("a", "", "create or delete")
	path := flags.String("p", "", "path of the folder")
	mode := flags.String("m", "Filesystem", "mode of the volume")
	flags.String("s", "", "size in bytes: a folder has none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch *action {
	case "create":
		if *mode != "Filesystem" {
			return fmt.Errorf("a folder is no volume of mode %s", *mode)
		}
		// Whatever user the pod runs as writes there. The umask may take that from MkdirAll.
		return errors.Join(os.MkdirAll(*path, 0o777), os.Chmod(*path, 0o777))
	case "delete":
		return os.RemoveAll(*path)
	}
	return fmt.Errorf("-a is %q: create and delete are accepted", *action)
}
