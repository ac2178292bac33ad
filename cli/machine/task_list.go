package machine

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newTaskList(s *cli.Shell) *cobra.Command {
	var app string
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List machines that are warm for tasks",
		Long: `List the machines that are warm for tasks. For each one, the list shows how many
payloads it accepts at once, how many it has answered or failed to answer since its
worker's daemon started, and its last error. Only started machines accept payloads.`,
		Example: "  bourse task list -a shop",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if all {
				if c.Flags().Changed("app") {
					return bourse.Errorf(bourse.CodeInvalid, "--app and --all-apps are mutually exclusive")
				}
				app = ""
			}
			list, silent, err := s.Client().Machines(c.Context(), bourse.AppName(app), machinesapi.ListMachines{})
			if err != nil {
				return err
			}
			s.WarnMissing(silent, "machines")
			list = slices.DeleteFunc(list, func(m machinesapi.Machine) bool { return m.Known() == nil || m.Known().Task == nil })
			slices.SortStableFunc(list, func(x, y machinesapi.Machine) int {
				return cmp.Or(cmp.Compare(x.App, y.App), cmp.Compare(x.Known().Task.Name, y.Known().Task.Name))
			})
			rows := withCounts(c.Context(), s, list)
			t := cli.NewTable("TASK", "APP", "MACHINE", "NAME", "STATE", "REGION", "WORKER", "AT ONCE", "RAN", "FAILED", "LAST ERROR").
				Numbers(7, 8, 9).Narrow(10, 3, 0, 1).Drop(6, 3, 5, 10, 7)
			if !all {
				t.Hide(1)
			}
			none := "no machines are warm for tasks; start one with: bourse machine run host --task NAME -- PROGRAM"
			return cli.PrintList(s, rows, none, t, func(m *warmMachine) []string {
				ran, failed, last := "-", "-", "-"
				if y := m.Tasks; y != nil {
					ran, failed = strconv.FormatInt(y.Total, 10), strconv.FormatInt(y.Failed, 10)
					if y.Failed > 0 {
						last = cli.Clean(y.Error) + " (" + cli.Age(s.Now().Sub(y.FailedAt)) + " ago)"
					}
				}
				return []string{
					m.Known().Task.Name, string(m.App), string(m.ID), m.Name, string(m.State), string(m.Region), string(m.Worker),
					strconv.Itoa(m.Known().Task.Places()), ran, failed, last,
				}
			})
		},
	}
	s.BindApp(c, &app).Unless("all-apps")
	c.Flags().BoolVarP(&all, "all-apps", "A", false, "machines of every app that the token may access")
	return c
}

// warmMachine is a machine that is warm for a task, with its task counters.
type warmMachine struct {
	machinesapi.Machine
	Tasks *bourse.TaskCounts `json:"tasks,omitempty"` // nil if the counters are unknown
}

// usageReaders is the maximum number of machines that are queried at the same time.
const usageReaders = 8

// withCounts adds task counters to the started machines in list.
func withCounts(ctx context.Context, s *cli.Shell, list []machinesapi.Machine) []warmMachine {
	out := make([]warmMachine, len(list))
	var group errgroup.Group
	group.SetLimit(usageReaders)
	for i := range list {
		out[i].Machine = list[i]
		if list[i].State != bourse.StateStarted {
			continue
		}
		group.Go(func() error {
			if u, err := s.Client().Usage(ctx, list[i].App, list[i].ID); err == nil {
				out[i].Tasks = u.Tasks
			}
			return nil
		})
	}
	_ = group.Wait() // never fails, because the functions return no errors
	return out
}
