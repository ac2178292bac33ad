package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newRegionList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the regions with their workers and free capacity",
		Long: `List the regions with their workers and free capacity, which is the sum of the
workers' current answers. If the token may not list workers, only the regions are
shown.`,
		Example: "  bourse region list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			stop := cli.Spin(s.Err, "asking the workers")
			list, err := regions(c.Context(), s)
			stop()
			if err != nil {
				return err
			}
			t := cli.NewTable("REGION", "WORKERS", "MACHINES", "CPU FREE", "MEMORY FREE").Numbers(2, 3, 4)
			none := "no regions, because there are no workers; start one with: bourse serve worker --region gru --name gru-1 --data DIR --join HOST:PORT"
			return cli.PrintList(s, list, none, t, func(r *region) []string {
				if !r.asked {
					return []string{string(r.Code), fmt.Sprint(r.Workers), "-", "-", "-"}
				}
				return []string{string(r.Code), workersOf(r), fmt.Sprint(*r.Machines), r.free(bourse.ResourceCPU), r.free(bourse.ResourceMemory)}
			})
		},
	}
}

// region describes a region and contains its workers' totals. The totals are missing if the token
// does not permit listing workers.
type region struct {
	Code     bourse.Region    `json:"code"`
	Workers  int              `json:"workers"`
	OK       *int             `json:"workers_ok,omitempty"` // workers that answer and accept orders
	Machines *int             `json:"machines,omitempty"`
	Accounts []bourse.Account `json:"accounts,omitempty"` // totals of the workers counted by OK
	asked    bool
}

// regions fetches the regions and, if the token permits it, their workers.
func regions(ctx context.Context, s *cli.Shell) ([]region, error) {
	known, err := s.Client().Regions(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]region, len(known.Regions))
	for i, r := range known.Regions {
		list[i] = region{Code: r.Code, Workers: r.Workers}
	}
	workers, err := s.Client().Workers(ctx)
	switch bourse.CodeOf(err) {
	case "":
		return sums(list, workers), nil
	case bourse.CodeForbidden, bourse.CodeUnauthorized:
		return list, nil
	default:
		return nil, err
	}
}

func sums(list []region, workers []machinesapi.Worker) []region {
	for i := range list {
		r := &list[i]
		r.asked, r.OK, r.Machines, r.Workers = true, new(int), new(int), 0
		for k := range workers {
			if workers[k].Region == r.Code {
				r.add(&workers[k])
			}
		}
		slices.SortFunc(r.Accounts, func(a, b bourse.Account) int { return cmp.Compare(a.Resource, b.Resource) })
	}
	return list
}

func (r *region) add(w *machinesapi.Worker) {
	r.Workers++
	if w.Facts == nil {
		return
	}
	for state, n := range w.Facts.Machines {
		if state != bourse.StateDestroyed {
			*r.Machines += n
		}
	}
	if w.Leaving || w.Facts != nil && w.Facts.Cordon != nil || w.Status != machinesapi.WorkerOK {
		return
	}
	*r.OK++
	for _, a := range w.Facts.Accounts {
		i := slices.IndexFunc(r.Accounts, func(x bourse.Account) bool { return x.Resource == a.Resource })
		if i < 0 {
			r.Accounts = append(r.Accounts, a)
			continue
		}
		r.Accounts[i].Total += a.Total
		r.Accounts[i].Used += a.Used
		r.Accounts[i].Held += a.Held
	}
}

func (r *region) free(of bourse.Resource) string {
	for _, a := range r.Accounts {
		if a.Resource == of {
			return cli.Free(a)
		}
	}
	return "-"
}

// workersOf formats the number of a region's workers. If only some of them accept orders, it also
// shows how many do.
func workersOf(r *region) string {
	if *r.OK == r.Workers {
		return fmt.Sprint(r.Workers)
	}
	return fmt.Sprintf("%d of %d ok", *r.OK, r.Workers)
}
