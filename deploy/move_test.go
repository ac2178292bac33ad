package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"

	"github.com/bourse-dev/bourse/machinesapi"
)

var webServices = json.RawMessage(`[{"protocol":"tcp","internal_port":8080,"ports":[{"port":80}]}]`)

// machine returns a started machine on worker w1, changed by the given functions.
func machine(name string, change ...func(*machinesapi.Machine)) machinesapi.Machine {
	var m machinesapi.Machine
	m.ID, m.Name, m.State, m.Region, m.InstanceID = bourse.NewMachineID(1), name, bourse.StateStarted, "gru", "01"
	m.Worker, m.HostStatus = "w1", machinesapi.HostOK
	m.Config = &bourse.Config{Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"serve"}}, Metadata: map[string]string{deploy.KeyGroup: "app"}}
	for _, f := range change {
		f(&m)
	}
	return m
}

func serves(m *machinesapi.Machine)    { m.Config.Services = webServices }
func stopped(m *machinesapi.Machine)   { m.State = bourse.StateStopped }
func elsewhere(m *machinesapi.Machine) { m.Worker = "w2" }

func noGroup(m *machinesapi.Machine) { delete(m.Config.Metadata, deploy.KeyGroup) }

// oldGroup sets the group as older clients do.
func oldGroup(name string) func(*machinesapi.Machine) {
	return func(m *machinesapi.Machine) { m.Config.Metadata["process_group"] = name }
}

func mounts(m *machinesapi.Machine) {
	m.Config.Mounts = []bourse.Mount{{Volume: bourse.NewVolumeID(1), Name: "data", SizeGB: 2, Path: "/data"}}
}

func two(m *machinesapi.Machine) {
	m.Config.Services = json.RawMessage(`[{"ports":[{"port":80}],"min_machines_running":2}]`)
}

func job(m *machinesapi.Machine) { m.Config.Restart = &bourse.Restart{Policy: bourse.RestartNo} }

// ofWorker1 plans moves of the machines in list that are on worker w1.
func ofWorker1(t *testing.T, opts deploy.MoveOptions, list ...machinesapi.Machine) deploy.Moves {
	t.Helper()
	var ids []bourse.MachineID
	for i := range list {
		if list[i].Worker == "w1" {
			ids = append(ids, list[i].ID)
		}
	}
	moves := deploy.PlanMoves(&deploy.State{App: "web", Machines: list}, ids, opts)
	if got := len(moves.Moved) + len(moves.Later) + len(moves.Unmovable); got != len(ids) {
		t.Errorf("%d machines are moved and %d are not, of %d", len(moves.Moved), len(moves.Unmovable), len(ids))
	}
	return moves
}

func TestWhatMoves(t *testing.T) {
	t.Parallel()
	other := machine("other", serves, elsewhere)
	for name, c := range map[string]struct {
		opts  deploy.MoveOptions
		list  []machinesapi.Machine
		goes  int
		later int
		stay  string
	}{
		"one that serves":                 {list: []machinesapi.Machine{machine("a", serves)}, goes: 1},
		"a machine that serves nothing":   {list: []machinesapi.Machine{machine("a")}, goes: 1},
		"a stopped one":                   {list: []machinesapi.Machine{machine("a", serves, stopped)}, goes: 1},
		"with a volume":                   {list: []machinesapi.Machine{machine("a", serves, mounts), other}, goes: 1},
		"with a volume, stopped":          {list: []machinesapi.Machine{machine("a", serves, mounts, stopped)}, goes: 1},
		"machines with volumes come last": {list: []machinesapi.Machine{machine("a", serves, mounts), machine("b", serves), other}, goes: 1, later: 1},
		"with a volume, beside an older client's machine": {list: []machinesapi.Machine{
			machine("a", serves, mounts), machine("b", serves, elsewhere, noGroup), machine("c", serves, elsewhere, noGroup, oldGroup("app")),
		}, goes: 1},
		"with a volume, beside another group": {list: []machinesapi.Machine{
			machine("a", serves, mounts, noGroup), machine("b", serves, elsewhere, noGroup, oldGroup("worker")),
		}, stay: "its group would serve with 0 machines"},
		"nothing would serve":              {list: []machinesapi.Machine{machine("a", serves, mounts)}, stay: "its group would serve with 0 machines"},
		"that is allowed":                  {opts: deploy.MoveOptions{Downtime: true}, list: []machinesapi.Machine{machine("a", serves, mounts)}, goes: 1},
		"nothing needs to serve":           {list: []machinesapi.Machine{machine("a", mounts)}, goes: 1},
		"too few would serve":              {list: []machinesapi.Machine{machine("a", mounts, two), other}, stay: "its group would serve with 1 machines while its volume is copied, and needs 2"},
		"a job":                            {list: []machinesapi.Machine{machine("a", job)}, stay: "runs until it exits"},
		"a finished job":                   {list: []machinesapi.Machine{machine("a", job, stopped)}, goes: 1},
		"on its way":                       {list: []machinesapi.Machine{machine("a", func(m *machinesapi.Machine) { m.State = bourse.StateStarting })}, stay: "it is starting"},
		"on a worker that does not answer": {list: []machinesapi.Machine{machine("a", func(m *machinesapi.Machine) { m.HostStatus = machinesapi.HostUnreachable })}, stay: "does not answer"},
		"an incomplete config":             {list: []machinesapi.Machine{machine("a", func(m *machinesapi.Machine) { m.Config = nil })}, stay: "does not answer"},
		"of a poller":                      {list: []machinesapi.Machine{machine("a", func(m *machinesapi.Machine) { m.Config.Image = bourse.ImagePull })}, stay: "polls a gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			moves := ofWorker1(t, c.opts, c.list...)
			if len(moves.Moved) != c.goes || len(moves.Later) != c.later || len(moves.Plan.Refused) > 0 {
				t.Errorf("got %d moved and %d later, want %d and %d; refused: %v", len(moves.Moved), len(moves.Later), c.goes, c.later, moves.Plan.Refused)
			}
			if c.stay == "" && len(moves.Unmovable) > 0 || c.stay != "" && (len(moves.Unmovable) != 1 || !strings.Contains(moves.Unmovable[0].Why, c.stay)) {
				t.Errorf("unmovable: got %+v, want %q", moves.Unmovable, c.stay)
			}
		})
	}
}

// TestOrder checks that a machine is destroyed only after its replacement serves, and that
// each step that creates or destroys something belongs to a machine.
func TestOrder(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*machinesapi.Machine){"plain": func(*machinesapi.Machine) {}, "with volumes": mounts} {
		t.Run(name, func(t *testing.T) {
			list := []machinesapi.Machine{machine("other", serves, elsewhere)}
			for range 12 {
				list = append(list, machine("m", serves, change))
			}
			moves := ofWorker1(t, deploy.MoveOptions{Concurrency: 4, Region: "mad"}, list...)
			steps := moves.Plan.Steps
			before := make([][]bool, len(steps)) // for each step, the steps that have finished before it begins
			gone := 0
			for i := range steps {
				s := &steps[i]
				before[i] = make([]bool, len(steps))
				for _, a := range s.After {
					before[i][a] = true
					for j, is := range before[a] {
						before[i][j] = before[i][j] || is
					}
				}
				if (deploy.Is[deploy.MakeMachine](s.Do) || deploy.Is[deploy.MakeVolume](s.Do)) && (s.Region != "mad" || !slices.Contains(moves.Moved, moves.MachineOf(i))) {
					t.Errorf("step %d creates something in %s for %q", i, s.Region, moves.MachineOf(i))
				}
				if !deploy.Is[deploy.DestroyMachine](s.Do) {
					continue
				}
				gone++
				served := slices.IndexFunc(steps, func(x deploy.Step) bool {
					return deploy.Is[deploy.UncordonMachine](x.Do) && moves.MachineOf(x.ID) == s.Machine
				})
				if served < 0 || !before[i][served] {
					t.Errorf("step %d destroys a machine whose replacement may not serve yet", i)
				}
			}
			if gone != 12 {
				t.Errorf("got %d moved machines, want 12", gone)
			}
		})
	}
}

// TestToAWorker checks that the replacement on a given worker uses capacity reserved there, or a volume created there.
// The replacement's config must not require the worker.
func TestToAWorker(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*machinesapi.Machine){"plain": func(*machinesapi.Machine) {}, "with a volume": mounts} {
		m := machine("a", change)
		m.Config.Requirements = bourse.Requirements{"slots": {Count: 1}}
		moves := ofWorker1(t, deploy.MoveOptions{To: "w2", Region: "gru"}, m)
		for _, s := range moves.Plan.Steps {
			switch do := s.Do.(type) {
			case deploy.MakeMachine:
				if _, bound := do.Config.Requirements[bourse.LabelWorker]; bound || (do.Worker == "w2") != (do.Volume == nil) || moves.Plan.Reserve != (do.Volume == nil) {
					t.Errorf("%s: created on worker %q, requires %v, reserves %v", name, do.Worker, do.Config.Requirements, moves.Plan.Reserve)
				}
			case deploy.MakeVolume:
				if r := do.Machine.Requirements; r[bourse.LabelWorker].Label != "w2" || r["slots"].Count != 1 {
					t.Errorf("%s: its volume requires %v", name, r)
				}
			}
		}
		if _, bound := m.Config.Requirements[bourse.LabelWorker]; bound || len(moves.Moved) != 1 {
			t.Errorf("%s: %d machines are moved, and the machine requires %v", name, len(moves.Moved), m.Config.Requirements)
		}
	}
	for want, to := range map[string]bourse.WorkerID{"already on worker w1": "w1", "only running machines": "w2"} {
		moves := ofWorker1(t, deploy.MoveOptions{To: to}, machine("a", stopped))
		if len(moves.Unmovable) != 1 || !strings.Contains(moves.Unmovable[0].Why, want) {
			t.Errorf("move to %s: got %+v, want %q", to, moves.Unmovable, want)
		}
	}
}

// TestUnfinishedMoveElsewhere checks that a move continues with an existing replacement
// only if the replacement is on the target.
func TestUnfinishedMoveElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts      deploy.MoveOptions
		continues bool
	}{
		"no target":          {deploy.MoveOptions{}, true},
		"its worker":         {deploy.MoveOptions{To: "w2", Region: "mad"}, true},
		"another worker":     {deploy.MoveOptions{To: "w3", Region: "mad"}, false},
		"its region":         {deploy.MoveOptions{Region: "mad"}, true},
		"the former region":  {deploy.MoveOptions{Region: "gru"}, false},
		"yet another region": {deploy.MoveOptions{Region: "fra"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("a", serves)
			n := machine("b", serves, elsewhere, func(n *machinesapi.Machine) {
				n.Region, n.Config.Metadata[deploy.KeyReplaces] = "mad", string(m.ID)
			})
			p := ofWorker1(t, c.opts, m, n).Plan
			makes := slices.ContainsFunc(p.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.MakeMachine](s.Do) })
			destroys := slices.IndexFunc(p.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.DestroyMachine](s.Do) && s.Machine == n.ID })
			if makes == c.continues || (destroys >= 0) == c.continues || len(p.Refused) > 0 {
				t.Errorf("creates a machine: %v, destroys the replacement in step %d, refused: %q", makes, destroys, p.Refused)
			}
			cordons := slices.IndexFunc(p.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.CordonMachine](s.Do) && s.Machine == n.ID })
			if destroys >= 0 {
				told := slices.IndexFunc(p.Steps, func(s deploy.Step) bool {
					return deploy.Is[deploy.AwaitProxies](s.Do) && slices.Contains(s.After, cordons)
				})
				if cordons < 0 || told < 0 || !slices.Contains(p.Steps[destroys].After, told) {
					t.Errorf("the replacement is destroyed while proxies may still send requests to it\n%s", dump(&p))
				}
			}
		})
	}
}

// TestUnfinishedMoveOfAVolumeElsewhere checks that a move to another target does not discard a replacement in use,
// because it has newer data than the machine that it replaces.
func TestUnfinishedMoveOfAVolumeElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(n *machinesapi.Machine)
		to      bourse.WorkerID
		refused bool
	}{
		"it is in use":         {func(*machinesapi.Machine) {}, "w3", true},
		"there is no target":   {func(*machinesapi.Machine) {}, "", false},
		"it is not yet in use": {func(n *machinesapi.Machine) { n.Cordoned = true }, "w3", false},
		"it has never run":     {func(n *machinesapi.Machine) { n.State, n.Starts = bourse.StateStopped, 0 }, "w3", false},
		"the data is missing":  {func(n *machinesapi.Machine) { delete(n.Config.Metadata, deploy.KeyCopies) }, "w3", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine("a", mounts, stopped, func(m *machinesapi.Machine) { m.Starts = 3 })
			n := machine("b", mounts, elsewhere, func(n *machinesapi.Machine) {
				n.Starts, n.Config.Metadata[deploy.KeyReplaces], n.Config.Metadata[deploy.KeyCopies] = 1, string(m.ID), "01/3"
			}, c.change)
			p := ofWorker1(t, deploy.MoveOptions{To: c.to, Region: "gru"}, m, n).Plan
			if (len(p.Refused) > 0) != c.refused {
				t.Errorf("refused: %q", p.Refused)
			}
		})
	}
}

// TestReplacement checks that a replacement has the machine's config, except for the volume
// and the metadata that names the replaced machine.
func TestReplacement(t *testing.T) {
	t.Parallel()
	m := machine("a", mounts)
	m.Config.Env = map[string]string{"A": "b"}
	moves := ofWorker1(t, deploy.MoveOptions{}, m)
	i := slices.IndexFunc(moves.Plan.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.MakeMachine](s.Do) })
	made := moves.Plan.Steps[i].Do.(deploy.MakeMachine)
	volume := moves.Plan.Steps[*made.Volume].Do.(deploy.MakeVolume)
	if made.Config.Env["A"] != "b" || made.Config.Metadata[deploy.KeyReplaces] != string(m.ID) || made.Config.Metadata[deploy.KeyGroup] != "app" || made.Config.Mounts[0].Volume != "" || made.Config.Mounts[0].Path != "/data" {
		t.Errorf("the replacement's config is %+v", made.Config)
	}
	if want := (deploy.MakeVolume{Name: "data", SizeGB: 2, Fork: m.Config.Mounts[0].Volume, Machine: m.Config, AnyWorker: true}); volume != want {
		t.Errorf("the volume's config is %+v, want %+v", volume, want)
	}
	if m.Config.Mounts[0].Volume == "" || m.Config.Metadata[deploy.KeyReplaces] != "" {
		t.Error("the machine's own config was changed")
	}
}
