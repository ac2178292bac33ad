package machine

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewEvents returns the "events" command, which exists at the top level and below
// "machine".
func NewEvents(s *cli.Shell) *cobra.Command {
	e := &events{shell: s, newest: map[bourse.MachineID]bourse.EventID{}}
	c := &cobra.Command{
		Use:   "events [MACHINE...]",
		Short: "List the events of machines",
		Long: `List the events of machines: what happened, the machine's state at that time, who
caused it, and how its program ended. With a single MACHINE, its events are listed
newest first. Otherwise the events of all machines of the app are listed by time,
newest last. With -f, new events are printed as they happen. A worker keeps a
machine's events for a limited time after the machine was destroyed.`,
		Example: `  bourse events -a shop -f
  bourse machine events quiet-river-1234`,
		ValidArgsFunction: completeMachine(s, &e.app),
		RunE: func(c *cobra.Command, args []string) error {
			if e.limit < 1 || e.limit > machinesapi.MaxEvents {
				return bourse.Errorf(bourse.CodeInvalid, "--limit %d: use 1 to %d", e.limit, machinesapi.MaxEvents)
			}
			if len(args) == 1 && !e.follow {
				return e.showOne(c.Context(), args[0])
			}
			return e.showAll(c.Context(), args)
		},
	}
	s.BindApp(c, &e.app)
	c.Flags().IntVarP(&e.limit, "limit", "n", machinesapi.MaxEvents, "maximum `number` of events")
	c.Flags().BoolVarP(&e.follow, "follow", "f", false, "print new events as they happen, until Ctrl-C")
	return c
}

// events is one invocation of the "events" command.
type events struct {
	shell  *cli.Shell
	app    string
	limit  int
	follow bool
	newest map[bourse.MachineID]bourse.EventID // id of each machine's newest printed event
}

// machineEvent is an event together with its machine.
type machineEvent struct {
	Machine bourse.MachineID `json:"machine"`
	Name    string           `json:"name"`
	machinesapi.Event
}

func (e *events) showOne(ctx context.Context, word string) error {
	id, err := resolve(ctx, e.shell, e.app, word)
	if err != nil {
		return err
	}
	end := cli.Spin(e.shell.Err, "fetching events")
	list, err := e.shell.Client().Events(ctx, bourse.AppName(e.app), id, e.limit)
	end()
	if err != nil {
		return about(err, e.app, id)
	}
	return cli.PrintList(e.shell, list, "machine "+string(id)+" has no events", newEventTable(), eventRow)
}

// showAll shows the events of the named machines, or of all machines of the app.
func (e *events) showAll(ctx context.Context, words []string) error {
	var only []bourse.MachineID
	for _, word := range words {
		id, err := resolve(ctx, e.shell, e.app, word)
		if err != nil {
			return err
		}
		only = append(only, id)
	}
	end := cli.Spin(e.shell.Err, "fetching events")
	list, silent, err := e.news(ctx, only, true)
	end()
	e.shell.WarnMissing(silent, "machines")
	if err != nil {
		return err
	}
	list = list[max(0, len(list)-e.limit):]
	if !e.follow {
		return cli.PrintList(e.shell, list, "app "+e.app+" has no events", appEventTable(), appEventRow)
	}
	for {
		if err := e.print(list); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(newMachinesInterval):
		}
		if list, _, err = e.news(ctx, only, false); err != nil && !cli.Temporary(err) {
			return err
		}
	}
}

// eventReaders is the maximum number of machines that are queried at the same time.
const eventReaders = 8

// news returns the events that earlier calls have not returned, sorted by time. silent
// lists the workers that did not answer. news queries the machines in only, or all of
// the app's machines if only is empty. Unless all is set, it skips machines that have
// no new event.
func (e *events) news(ctx context.Context, only []bourse.MachineID, all bool) (out []machineEvent, silent []bourse.WorkerID, err error) {
	client, app := e.shell.Client(), bourse.AppName(e.app)
	machines, silent, err := client.Machines(ctx, app, machinesapi.ListMachines{Deleted: true})
	if err != nil {
		return nil, nil, err
	}
	machines = slices.DeleteFunc(machines, func(m machinesapi.Machine) bool {
		fresh := len(m.Events) > 0 && m.Events[0].ID != e.newest[m.ID]
		return len(only) > 0 && !slices.Contains(only, m.ID) || !all && !fresh
	})
	lists := make([][]machinesapi.Event, len(machines))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(eventReaders)
	for i := range machines {
		group.Go(func() (err error) {
			lists[i], err = client.Events(ctx, app, machines[i].ID, e.limit)
			if bourse.CodeOf(err) == bourse.CodeNotFound || cli.Temporary(err) {
				return nil // the machine is gone, or a later call returns its events
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, silent, err
	}
	for i, list := range lists {
		m := &machines[i]
		for _, x := range list {
			if x.ID == e.newest[m.ID] {
				break
			}
			out = append(out, machineEvent{m.ID, m.Name, x})
		}
		if len(list) > 0 {
			e.newest[m.ID] = list[0].ID
		}
	}
	slices.SortStableFunc(out, func(x, y machineEvent) int {
		return cmp.Or(cmp.Compare(x.Timestamp, y.Timestamp), cmp.Compare(x.ID, y.ID))
	})
	return out, silent, nil
}

// print prints one line for each event. Columns have fixed widths, because the contents of
// later lines are unknown.
func (e *events) print(list []machineEvent) error {
	for i := range list {
		if e.shell.JSON {
			if err := e.shell.PrintLine(&list[i]); err != nil {
				return err
			}
			continue
		}
		row := appEventRow(&list[i])
		var line strings.Builder
		for i, width := range []int{29, maxLabel, 12, 10, 8} {
			line.WriteString(cli.Pad(cli.Cut(cli.Clean(row[i]), width), width, false) + cli.ColumnGap)
		}
		if _, err := io.WriteString(e.shell.Out, line.String()+cli.Clean(row[len(row)-1])+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func appEventTable() *cli.Table {
	return cli.NewTable("WHEN", "MACHINE", "EVENT", "STATE", "BY", "EXIT", "DETAIL").Numbers(5).Narrow(6, 1).Drop(4).Paint(3, stateTone).Wrap()
}

func appEventRow(e *machineEvent) []string {
	row := eventRow(&e.Event)
	return slices.Insert(row, 1, cmp.Or(e.Name, string(e.Machine)))
}
