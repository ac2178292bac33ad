package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

const statsStep = 2 * time.Second // refresh interval of --watch

func newStats(s *cli.Shell) *cobra.Command {
	var app string
	var watch bool
	c := &cobra.Command{
		Use:               "stats [MACHINE...]",
		Short:             "Show machines' resource usage and limits",
		Example:           "  bourse machine stats --watch",
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			for {
				if err := showStats(c.Context(), s, app, args); err != nil || !watch {
					return err
				}
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(statsStep):
				}
			}
		},
	}
	s.BindApp(c, &app)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print again every 2 seconds, until Ctrl-C")
	return c
}

// machineUsage is one machine's resource usage.
type machineUsage struct {
	ID    bourse.MachineID   `json:"id"`
	Name  string             `json:"name,omitempty"`
	Usage *machinesapi.Usage `json:"usage,omitempty"`
	Error string             `json:"error,omitempty"`
}

func showStats(ctx context.Context, s *cli.Shell, app string, words []string) error {
	list, err := selectMachines(ctx, s, app, words)
	if err != nil {
		return err
	}
	for i := range list {
		u, err := s.Client().Usage(ctx, bourse.AppName(app), list[i].ID)
		switch {
		case err != nil && len(words) > 0:
			return about(err, app, list[i].ID)
		case err != nil: // the machine may have stopped in the meantime
			list[i].Error = bourse.MessageOf(err)
		default:
			list[i].Usage = &u
		}
	}
	t := cli.NewTable("MACHINE", "NAME", "CPU", "LIMIT", "MEMORY", "LIMIT", "PIDS", "READ", "WRITTEN").Numbers(2, 3, 4, 5, 6, 7, 8).Narrow(1)
	return cli.PrintList(s, list, "app "+app+" has no running machines", t, func(m *machineUsage) []string {
		u := m.Usage
		if u == nil {
			return []string{string(m.ID), m.Name, m.Error, "", "", "", "", "", ""}
		}
		return []string{
			string(m.ID), m.Name, orDash(u.CPUs >= 0, "%.2f", u.CPUs), orDash(u.CPULimit > 0, "%g", u.CPULimit), cli.Bytes(u.Memory),
			orDash(u.MemLimit > 0, "%s", cli.Bytes(u.MemLimit)), orDash(u.PIDs >= 0, "%d", u.PIDs), cli.Bytes(u.Read), cli.Bytes(u.Written),
		}
	})
}

// selectMachines returns the named machines or, if words is empty, the app's started and
// suspended machines.
func selectMachines(ctx context.Context, s *cli.Shell, app string, words []string) ([]machineUsage, error) {
	out := []machineUsage{}
	for _, word := range words {
		id, err := resolve(ctx, s, app, word)
		if err != nil {
			return nil, err
		}
		out = append(out, machineUsage{ID: id})
	}
	if len(words) > 0 {
		return out, nil
	}
	all, err := listMachines(ctx, s, app)
	for _, m := range all {
		if m.State == bourse.StateStarted || m.State == bourse.StateSuspended {
			out = append(out, machineUsage{ID: m.ID, Name: m.Name})
		}
	}
	return out, err
}

// orDash formats value if it is known. Otherwise it returns "-".
func orDash(known bool, format string, value any) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf(format, value)
}
