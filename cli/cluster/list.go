package cluster

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newWorkerList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workers and their free capacity",
		Example: "  bourse worker list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			stop := cli.Spin(s.Err, "asking the workers")
			list, err := s.Client().Workers(c.Context())
			stop()
			if err != nil {
				return err
			}
			if s.JSON {
				if list == nil {
					list = []machinesapi.Worker{}
				}
				return s.PrintJSON(machinesapi.WorkerList{Workers: list})
			}
			if len(list) == 0 {
				s.Note("no workers; start one with: bourse serve worker --region gru --name gru-1 --data DIR --join HOST:PORT")
				return nil
			}
			t := cli.NewTable("WORKER", "REGION", "STATUS", "MACHINES", "CPU FREE", "MEMORY FREE", "ADDRESS").Numbers(3, 4, 5).Narrow(6)
			for i := range list {
				w := &list[i]
				t.Row(string(w.ID), string(w.Region), statusOf(w, s.Now()), machineCount(w),
					freeOf(w, bourse.ResourceCPU), freeOf(w, bourse.ResourceMemory), addressOf(w))
			}
			return t.Write(s.Out)
		},
	}
}

// addressOf formats a worker's address.
func addressOf(w *machinesapi.Worker) string {
	if nats.IsAddress(w.Address) {
		return "on NATS"
	}
	return cmp.Or(w.Address, "-")
}

func statusOf(w *machinesapi.Worker, now time.Time) string {
	switch {
	case w.Status == machinesapi.WorkerDown:
		return "DOWN " + absentSince(w, now)
	case w.Status == machinesapi.WorkerStopped:
		return "stopped " + absentSince(w, now)
	case w.Leaving:
		return "leaving"
	case w.Facts != nil && w.Facts.Cordon != nil:
		return "cordoned"
	}
	return string(w.Status)
}

// absentSince formats the time when a worker became absent.
func absentSince(w *machinesapi.Worker, now time.Time) string {
	if w.Earlier {
		return "since before " + cli.Clock(w.Since, now)
	}
	return "since " + cli.Clock(w.Since, now)
}

// machineCount formats the number of a worker's machines, not counting destroyed ones.
func machineCount(w *machinesapi.Worker) string {
	if w.Facts == nil && w.Since.IsZero() {
		return "-"
	}
	if w.Facts == nil {
		return fmt.Sprint(w.Machines)
	}
	n := 0
	for state, k := range w.Facts.Machines {
		if state != bourse.StateDestroyed {
			n += k
		}
	}
	return fmt.Sprint(n)
}

// freeOf formats the free and total amounts of a worker's resource.
func freeOf(w *machinesapi.Worker, r bourse.Resource) string {
	if w.Facts == nil {
		return "-"
	}
	for _, a := range w.Facts.Accounts {
		if a.Resource == r {
			return cli.Free(a)
		}
	}
	return "-"
}
