package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"

	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newDrain(s *cli.Shell) *cobra.Command {
	var only, yes bool
	d := &drain{shell: s, moved: map[bourse.MachineID]bool{}, gone: map[bourse.VolumeID]bool{}, states: map[bourse.AppName]*deploy.State{}}
	c := &cobra.Command{
		Use:   "drain WORKER",
		Short: "Move a worker's machines to other workers",
		Long: `Move a worker's machines to other workers in the same region. The worker is cordoned
first, so that it accepts no more orders. Each machine is replaced by a new one
with another id. The old machine is destroyed once its replacement is ready and
receives requests. A machine with a volume is stopped, its volume is copied, and the
replacement mounts the copy. If no other machine of its group could serve in the
meantime, the machine is not moved unless you pass --allow-downtime.

If a move fails, its machine is restored and stays, and the other moves continue. At
the end, the command lists what is left, and why. Ctrl-C undoes moves in progress.
"bourse worker uncordon" makes the worker accept orders again; moved machines are not
moved back.`,
		Example: `  bourse worker drain gru-1 --plan
  bourse worker drain gru-1 --yes`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: complete(s),
		RunE: func(c *cobra.Command, args []string) error {
			d.worker = bourse.WorkerID(args[0])
			d.options.Why = "worker " + args[0] + " is drained"
			return d.run(c.Context(), only, yes)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&only, "plan", false, "show which machines would move, without moving them")
	cli.BindYes(c, &yes)
	flags.IntVar(&d.apps, "apps", 4, "`number` of apps whose machines are moved at the same time")
	flags.IntVar(&d.options.Concurrency, "at-once", 8, "`number` of an app's machines that are moved at the same time")
	flags.BoolVar(&d.options.Downtime, "allow-downtime", false, "also move machines with volumes if no other machine of their group can serve in the meantime")
	return c
}

// drain moves a worker's machines to other workers.
type drain struct {
	shell   *cli.Shell
	worker  bourse.WorkerID
	apps    int
	options deploy.MoveOptions
	states  map[bourse.AppName]*deploy.State // state of each app when its moves were planned
	show    *plans.Progress                  // progress display; nil if --json is set

	mu               sync.Mutex
	moved            map[bourse.MachineID]bool
	gone             map[bourse.VolumeID]bool // volumes on the worker that were destroyed after they had been copied
	total            int                      // number of machines to move
	unmovable        []remaining
	remainingVolumes []remaining // volumes on the worker whose machines this drain has destroyed
}

// drainPlan is the output of --plan --json.
type drainPlan struct {
	Worker bourse.WorkerID `json:"worker"`
	Plans  []deploy.Plan   `json:"plans"` // one per app
	Left   []remaining     `json:"left"`
}

func (d *drain) run(ctx context.Context, only, yes bool) error {
	w, err := d.shell.Client().Worker(ctx, d.worker)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return cli.Hint(err, "bourse worker list")
	}
	if err == nil && w.Facts == nil {
		err = bourse.Errorf(bourse.CodeUnavailable, "worker %s is %s and cannot be drained until it answers", d.worker, w.Status)
	}
	if err != nil {
		return err
	}
	stop := cli.Spin(d.shell.Err, "looking up the machines of worker "+string(d.worker))
	all, err := d.moves(ctx)
	stop()
	if err != nil {
		return err
	}
	if err := d.print(ctx, all, only); err != nil || only {
		return err
	}
	if d.total > 0 {
		question := fmt.Sprintf("cordon worker %s and move %s to other workers", d.worker, cli.Count(d.total, "machine"))
		if err := d.shell.Confirm(ctx, yes, question); err != nil {
			return err
		}
	}
	if _, err := d.shell.Client().Operator().Cordon(ctx, d.worker, true); err != nil {
		return err
	}
	return d.execute(ctx)
}

// moves returns the planned moves of all machines on the worker, by app. It stores the apps' states in d.states, and
// the number of machines to move in d.total.
func (d *drain) moves(ctx context.Context) (map[bourse.AppName]deploy.Moves, error) {
	list, _, err := d.shell.Client().Machines(ctx, "", machinesapi.ListMachines{Worker: d.worker})
	if err != nil {
		return nil, err
	}
	out := map[bourse.AppName]deploy.Moves{}
	d.total = 0
	for _, m := range list {
		if _, ok := out[m.App]; ok {
			continue
		}
		state, err := stateOf(ctx, d.shell, m.App)
		if err != nil {
			return nil, err
		}
		moves := deploy.PlanMoves(state, d.machinesHere(state, nil), d.options)
		out[m.App] = moves
		d.states[m.App] = state
		d.total += len(moves.Moved) + len(moves.Later)
	}
	return out, nil
}

// stateOf fetches an app's machines and volumes.
func stateOf(ctx context.Context, s *cli.Shell, app bourse.AppName) (*deploy.State, error) {
	machines, _, err := s.Client().Machines(ctx, app, machinesapi.ListMachines{})
	if err != nil {
		return nil, err
	}
	volumes, _, err := s.Client().Volumes(app).List(ctx)
	return &deploy.State{App: app, Machines: machines, Volumes: volumes}, err
}

// machinesHere returns the ids of the app's machines that are on the worker. It omits destroyed machines and those in
// except.
func (d *drain) machinesHere(state *deploy.State, except map[bourse.MachineID]bool) (ids []bourse.MachineID) {
	for i := range state.Machines {
		if m := &state.Machines[i]; m.Worker == d.worker && !except[m.ID] && m.State != bourse.StateDestroyed && m.State != bourse.StateDestroying {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// print shows which machines would be moved and which would stay.
func (d *drain) print(ctx context.Context, all map[bourse.AppName]deploy.Moves, only bool) error {
	names := sortedApps(all)
	if d.shell.JSON {
		if !only {
			return nil
		}
		out := drainPlan{Worker: d.worker, Plans: []deploy.Plan{}, Left: []remaining{}}
		for _, app := range names {
			moves := all[app]
			out.Plans = append(out.Plans, moves.Plan)
			out.Left = append(out.Left, remainingOf(app, moves.Unmovable)...)
		}
		out.Left = append(out.Left, d.volumes(ctx)...)
		return d.shell.PrintJSON(out)
	}
	t := cli.NewTable("APP", "GROUP", "REGION", "MACHINE", "DO", "WHY").Narrow(5).Drop(1).Wrap()
	moving, stay := 0, 0
	for _, app := range names {
		moves := all[app]
		for i := range d.states[app].Machines {
			m := &d.states[app].Machines[i]
			if !slices.Contains(moves.Moved, m.ID) && !slices.Contains(moves.Later, m.ID) {
				continue
			}
			if moving++; moving > maxRows {
				continue
			}
			do, why := "move", "its replacement is ready first"
			if len(m.Config.Mounts) > 0 {
				do, why = "move with its volume", "stopped while the volume is copied"
			}
			t.Row(string(app), cmp.Or(m.Config.Metadata[deploy.KeyGroup], "-"), string(m.Region), m.Name, do, why)
		}
		for _, x := range moves.Unmovable {
			if stay++; stay <= maxRows {
				t.Row(string(app), "-", "-", x.Name, "stays", x.Why)
			}
		}
	}
	if t.Empty() {
		d.shell.Note("worker " + string(d.worker) + " has no machines")
	} else {
		if err := t.Write(d.shell.Out); err != nil {
			return err
		}
		fmt.Fprintf(d.shell.Out, "%d to move, %d to stay%s\n", moving, stay, hidden(max(0, moving-maxRows)+max(0, stay-maxRows)))
	}
	if only {
		d.printVolumes(d.volumes(ctx))
	}
	return nil
}

// maxRows limits the number of rows for machines to move. A separate limit of the same size applies to machines that
// stay.
const maxRows = 50

func hidden(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of them not shown; --json shows all)", n)
}

func sortedApps(all map[bourse.AppName]deploy.Moves) []bourse.AppName {
	var names []bourse.AppName
	for app := range all {
		names = append(names, app)
	}
	slices.Sort(names)
	return names
}

func remainingOf(app bourse.AppName, list []deploy.Unmovable) (out []remaining) {
	for _, x := range list {
		out = append(out, remaining{App: app, Machine: x.Machine, Name: x.Name, Why: x.Why})
	}
	return out
}

// execute moves the machines and prints a report. It replans the moves first, because the worker may have accepted
// orders before it was cordoned.
func (d *drain) execute(ctx context.Context) error {
	all, err := d.moves(ctx)
	if err != nil {
		return err
	}
	if !d.shell.JSON && d.total > 0 {
		d.show = plans.ShowAll(d.shell, "drain of worker "+string(d.worker), d.total)
		stop := context.AfterFunc(ctx, func() {
			d.show.Say("interrupted: undoing the moves in progress; machines that have moved are not moved back")
		})
		defer stop()
	}
	group := errgroup.Group{} // an app's failure must not cancel the other apps' moves
	group.SetLimit(max(1, d.apps))
	failed := make([]error, len(all))
	for i, app := range sortedApps(all) {
		group.Go(func() error {
			failed[i] = d.moveApp(ctx, app)
			return nil
		})
	}
	_ = group.Wait() // the errors are stored in failed
	if d.show != nil {
		d.show.End()
	}
	if ctx.Err() != nil {
		err := cli.Hint(context.Cause(ctx), "bourse worker drain "+string(d.worker)+", to continue", "bourse worker uncordon "+string(d.worker)+", to accept orders again")
		return errors.Join(d.report(ctx), err)
	}
	return errors.Join(append([]error{d.report(ctx)}, failed...)...)
}

// moveApp moves an app's machines. If the move of a machine fails, moveApp skips that machine and replans the others.
func (d *drain) moveApp(ctx context.Context, app bourse.AppName) error {
	skip := map[bourse.MachineID]bool{}
	for {
		state, err := stateOf(ctx, d.shell, app)
		if err != nil {
			return err
		}
		moves := deploy.PlanMoves(state, d.machinesHere(state, skip), d.options)
		if len(moves.Moved) == 0 {
			d.addRemaining(remainingOf(app, moves.Unmovable)...)
			return nil
		}
		shown := func(run.Event) {}
		if d.show != nil {
			shown = d.show.Add(&moves.Plan)
		}
		var failed []run.Event
		result, err := run.Run(ctx, run.NewAPI(d.shell.Client(), app), moves.Plan, run.Options{
			Owner: "drain of worker " + string(d.worker),
			Events: func(e run.Event) {
				if e.State == run.Failed && e.Step != run.WholeRun {
					failed = append(failed, e)
				}
				d.handleEvent(app, &moves, e)
				shown(e)
			},
		})
		d.leaveVolumes(app, plans.VolumesLeft(&moves.Plan, &result))
		if err == nil && len(moves.Later) > 0 {
			continue
		}
		if err == nil {
			d.addRemaining(remainingOf(app, moves.Unmovable)...)
			return nil
		}
		before := len(skip)
		for _, e := range failed {
			if id := moves.MachineOf(e.Step); id != "" && !skip[id] {
				skip[id] = true
				d.addRemaining(remaining{App: app, Machine: id, Name: cmp.Or(moves.Plan.Seen[id].Name, moves.Plan.Steps[e.Step].Name, string(id)), Why: e.Text})
			}
		}
		if ctx.Err() != nil || len(skip) == before {
			return err
		}
	}
}

func (d *drain) addRemaining(list ...remaining) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unmovable = append(d.unmovable, list...)
}

// handleEvent records which machines were moved and which volumes were destroyed. With --json,
// it also prints the event.
func (d *drain) handleEvent(app bourse.AppName, moves *deploy.Moves, e run.Event) {
	if d.shell.JSON {
		_ = d.shell.PrintLine(struct { // a closed standard output is not an error
			App bourse.AppName `json:"app"`
			run.Event
		}{app, e})
	}
	if e.Step == run.WholeRun || e.State != run.Done {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := &moves.Plan.Steps[e.Step]; do := s.Do.(type) {
	case deploy.DestroyVolume:
		d.gone[do.Volume] = true
	case deploy.DestroyMachine:
		if slices.Contains(moves.Moved, s.Machine) {
			d.moved[s.Machine] = true
		}
	}
}
