package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) workerList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workers with what they have free",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			stop := spin(s.Err, "asking the workers")
			list, err := s.client().Workers(c.Context())
			stop()
			if err != nil {
				return err
			}
			if s.json {
				if list == nil {
					list = []machinesapi.Worker{}
				}
				return s.printJSON(machinesapi.WorkerList{Workers: list})
			}
			if len(list) == 0 {
				s.say("no workers; start one with: bourse serve worker --region gru --name gru-1 --data DIR --join HOST:PORT")
				return nil
			}
			t := newTable("WORKER", "REGION", "STATUS", "MACHINES", "CPU FREE", "MEMORY FREE", "ADDRESS").numbers(3, 4, 5).narrow(6)
			for i := range list {
				w := &list[i]
				t.row(string(w.ID), string(w.Region), workerStatus(w), machineCount(w),
					freeOf(w, bourse.ResourceCPU), freeOf(w, bourse.ResourceMemory), whereOf(w))
			}
			return t.write(s.Out, s.Out.Width)
		},
	}
}

// whereOf says how a worker is reached.
func whereOf(w *machinesapi.Worker) string {
	if bourse.OnNATS(w.Address) {
		return "on NATS"
	}
	return w.Address
}

func workerStatus(w *machinesapi.Worker) string {
	if w.Leaving {
		return "leaving"
	}
	return string(w.Status)
}

// machineCount counts a worker's machines that are not destroyed.
func machineCount(w *machinesapi.Worker) string {
	if w.Facts == nil {
		return "-"
	}
	n := 0
	for state, k := range w.Facts.Machines {
		if state != bourse.StateDestroyed {
			n += k
		}
	}
	return fmt.Sprint(n)
}

// freeOf shows how much of a resource is free, of how much.
func freeOf(w *machinesapi.Worker, r bourse.Resource) string {
	if w.Facts == nil {
		return "-"
	}
	for _, a := range w.Facts.Accounts {
		if a.Resource == r {
			return share(a)
		}
	}
	return "-"
}

// share shows "3.5/4" of what has no unit, "2/4 GiB" of what has.
func share(a bourse.Account) string {
	switch a.Resource {
	case bourse.ResourceCPU:
		return fmt.Sprintf("%g/%g", float64(a.Free())/1000, float64(a.Total)/1000)
	case bourse.ResourceMemory, bourse.ResourceDisk:
		return mib(bourse.MiB(a.Free())) + "/" + mib(bourse.MiB(a.Total))
	}
	return fmt.Sprintf("%d/%d", a.Free(), a.Total)
}
