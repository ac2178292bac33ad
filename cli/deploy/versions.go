package deploy

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// askers bounds how many machines are asked for their versions at a time.
const askers = 16

// versions asks for the former configs of all machines.
func versions(ctx context.Context, client *machinesapi.Client, have *there) error {
	have.Versions = make(map[bourse.MachineID][]machinesapi.Version, len(have.Machines))
	var mu sync.Mutex // guards have.Versions
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askers)
	for i := range have.Machines {
		m := &have.Machines[i]
		id, lost := m.ID, m.Config == nil || m.HostStatus != "" && m.HostStatus != machinesapi.HostOK
		g.Go(func() error {
			list, err := client.Versions(ctx, have.App, id)
			if code := bourse.CodeOf(err); code == bourse.CodeNotFound || code == bourse.CodeUnavailable && lost {
				return nil // it is gone, or its worker is: the plan says what that means
			}
			if err != nil { // a machine without former versions would be taken for one that the release made
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			have.Versions[id] = list
			return nil
		})
	}
	return g.Wait()
}
