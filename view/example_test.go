package view_test

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
)

// A worker publishes a machine, which everyone with a view can list.
func Example() {
	v, err := view.Open(view.Config{Cluster: "demo", Site: "w1"}) // an empty path means in memory
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()

	machine := bourse.Machine{ID: "00000100c0ffee", App: "shop", Name: "web", Region: "gru", State: bourse.StateStarted}
	if _, err := v.Publish(ctx, inventory.MachineRow(&machine)); err != nil {
		fmt.Println(err)
	}
	list, err := view.Query(ctx, v, inventory.Machines(inventory.Filter{App: "shop"}))
	if err != nil {
		fmt.Println(err)
	}
	for _, m := range list {
		fmt.Println(m.ID, m.Name, m.Region, m.Worker, m.State, m.HostStatus)
	}

	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	if err := v.Close(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 00000100c0ffee web gru w1 started ok
}
