package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const statsStep = 2 * time.Second // between two looks of --watch

func (s *shell) machineStats() *cobra.Command {
	var app string
	var watch bool
	c := &cobra.Command{
		Use:               "stats [MACHINE...]",
		Short:             "Show what machines use, beside what they may",
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			for {
				if err := s.showStats(c.Context(), app, args); err != nil || !watch {
					return err
				}
				select {
				case <-c.Context().Done():
					return nil
				case <-time.After(statsStep):
				}
			}
		},
	}
	s.bindApp(c, &app)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "again and again, until Ctrl-C")
	return c
}

// machineUsage is what one machine uses.
type machineUsage struct {
	ID    bourse.MachineID   `json:"id"`
	Name  string             `json:"name,omitempty"`
	Usage *machinesapi.Usage `json:"usage,omitempty"`
	Error string             `json:"error,omitempty"`
}

func (s *shell) showStats(ctx context.Context, app string, words []string) error {
	list, err := s.started(ctx, app, words)
	if err != nil {
		return err
	}
	for i := range list {
		u, err := s.client().Usage(ctx, bourse.AppName(app), list[i].ID)
		switch {
		case err != nil && len(words) > 0:
			return about(err, app, list[i].ID)
		case err != nil: // it may just have ended
			list[i].Error = bourse.MessageOf(err)
		default:
			list[i].Usage = &u
		}
	}
	if s.json {
		return s.printJSON(list)
	}
	if len(list) == 0 {
		s.say("app " + app + " has no machine that runs")
		return nil
	}
	t := newTable("MACHINE", "NAME", "CPU", "OF", "MEMORY", "OF", "PIDS", "READ", "WRITTEN").numbers(2, 3, 4, 5, 6, 7, 8).narrow(1)
	for _, m := range list {
		if u := m.Usage; u != nil {
			t.row(string(m.ID), m.Name, cores(u.CPUs), limitOf(u.CPULimit), bytesText(u.Memory), memoryLimit(u.MemLimit),
				known(u.PIDs), bytesText(u.Read), bytesText(u.Written))
			continue
		}
		t.row(string(m.ID), m.Name, m.Error, "", "", "", "", "", "")
	}
	return t.write(s.Out, s.Out.Width)
}

// started gives the machines that are named, or all of the app that run.
func (s *shell) started(ctx context.Context, app string, words []string) ([]machineUsage, error) {
	out := []machineUsage{}
	for _, word := range words {
		id, err := s.resolve(ctx, app, word)
		if err != nil {
			return nil, err
		}
		out = append(out, machineUsage{ID: id})
	}
	if len(words) > 0 {
		return out, nil
	}
	all, err := s.listMachines(ctx, app)
	for _, m := range all {
		if m.State == bourse.StateStarted {
			out = append(out, machineUsage{ID: m.ID, Name: m.Name})
		}
	}
	return out, err
}

func cores(cpus float64) string {
	if cpus < 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", cpus)
}

func limitOf(cpus float64) string {
	if cpus <= 0 {
		return "-"
	}
	return fmt.Sprintf("%g", cpus)
}

func memoryLimit(n int64) string {
	if n <= 0 {
		return "-"
	}
	return bytesText(n)
}

func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
