// Command custody-guest is the first process of Custody's sandboxes: init of a VM without arguments, init of a gVisor
// container with the argument "container".
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/custody-project/custody/guest"
	"github.com/custody-project/custody/guest/sensor"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "custody-guest is the init of Custody's VMs and must be their first process")
		os.Exit(2)
	}
	log.SetFlags(0)
	log.SetPrefix("custody-guest: ")
	if len(os.Args) == 2 && os.Args[1] == "container" {
		log.Fatal(guest.RunContainer(context.Background()))
	}
	err := guest.Run(context.Background(), func() (guest.Sensor, error) { return sensor.Load() })
	log.Print(err)
	guest.PowerOff()
}
