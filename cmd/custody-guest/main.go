// Command custody-guest is the first process of Custody's VMs. It takes no
// arguments and is of no use outside one.
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
	err := guest.Run(context.Background(), func() (guest.Sensor, error) { return sensor.Load() })
	log.Print(err)
	guest.PowerOff()
}
