package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestScaleDownLeavesMachinesApart checks that scaling down keeps machines on different
// workers rather than the oldest machines.
func TestScaleDownLeavesMachinesApart(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t)}
	s.there(in(web("shop:1"), "fra", 5))
	for i, worker := range []bourse.WorkerID{"a", "a", "b", "a", "b"} {
		s.nth(i + 1).Worker = worker
	}
	p := deploy.Scale(s.state(), map[string][]deploy.Count{"web": {{Region: "fra", Count: 2}}}, quick)
	var gone []string
	for _, step := range p.Steps {
		if deploy.Is[deploy.DestroyMachine](step.Do) {
			gone = append(gone, step.Name)
		}
	}
	slices.Sort(gone)
	if want := []string{"m2", "m4", "m5"}; !slices.Equal(gone, want) {
		t.Errorf("removed machines: got %v, want %v, because m1 on worker a and m3 on worker b stay", gone, want)
	}
}

// TestSeen checks that a plan describes the machines on which it is based.
func TestSeen(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t)}
	s.there(in(web("shop:1"), "fra", 3))
	ids := slices.Sorted(maps.Keys(s.machines))
	s.machines[ids[0]].Cordoned = true
	s.machines[ids[1]].Config.Metadata[deploy.KeyPaused] = "true"
	s.machines[ids[2]].HostStatus = machinesapi.HostUnreachable
	want := map[bourse.MachineID]deploy.Seen{ids[0]: {Cordoned: true}, ids[1]: {Paused: true}, ids[2]: {Lost: true}}
	for id, seen := range want {
		seen.Instance, seen.Name = s.machines[id].InstanceID, s.machines[id].Name
		want[id] = seen
	}
	p := deploy.Restart(s.state(), nil, quick)
	if diff := cmp.Diff(want, p.Seen); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestVolumesLeft checks that the volume of a destroyed machine remains, unless a fork
// replaces it.
func TestVolumesLeft(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t), opts: deploy.Options{Release: second, Version: 2}}
	s.there(in(db("shop:1"), "fra", 2))
	p := deploy.Scale(s.state(), map[string][]deploy.Count{"db": {{Region: "fra", Count: 0}}}, quick)
	if left := p.VolumesLeft(nil); len(left) != 2 || s.volumes[left[0]] == nil || s.volumes[left[1]] == nil || left[0] == left[1] {
		t.Errorf("after scaling to 0: got remaining volumes %v, want both", left)
	}
	if left := p.VolumesLeft(func(int) bool { return false }); len(left) > 0 {
		t.Errorf("before any step: got remaining volumes %v, want none", left)
	}
	move := deploy.Move(s.state(), slices.Collect(maps.Keys(s.machines)), slow)
	if left := move.VolumesLeft(nil); len(left) > 0 {
		t.Errorf("after a move: got remaining volumes %v, want none", left)
	}
	half := move.VolumesLeft(func(step int) bool { return !deploy.Is[deploy.DestroyVolume](move.Steps[step].Do) })
	if len(half) != 2 {
		t.Errorf("after a move that could not destroy the volumes: got remaining volumes %v, want both", half)
	}
}

// TestInterruptedMoveOfAVolume checks that a move continues with a replacement that an
// interrupted move created, unless the replacement lacks data. [world.destroyVolume] checks
// that no data is lost.
func TestInterruptedMoveOfAVolume(t *testing.T) {
	t.Parallel()
	nothing := func(*stage, *machinesapi.Machine) {}
	restart := func(s *stage, m *machinesapi.Machine) { s.launch(m); s.halt(m) }
	for name, c := range map[string]struct {
		before, meanwhile func(*stage, *machinesapi.Machine)
		continues         bool
	}{
		"nothing happened":                     {nothing, nothing, true},
		"it was stopped":                       {func(s *stage, m *machinesapi.Machine) { s.halt(m) }, nothing, true},
		"it ran again":                         {nothing, restart, false},
		"it was stopped before, and ran again": {func(s *stage, m *machinesapi.Machine) { s.halt(m) }, restart, false},
		"it runs":                              {nothing, func(s *stage, m *machinesapi.Machine) { s.launch(m); s.settle() }, false},
		"it was suspended, and resumed": {
			func(_ *stage, m *machinesapi.Machine) { m.State = bourse.StateSuspended },
			func(s *stage, m *machinesapi.Machine) { m.State = bourse.StateStarted; s.halt(m) }, false,
		},
		"it was updated": {nothing, func(s *stage, m *machinesapi.Machine) { s.update(m, m.Config, false); s.halt(m) }, false},
		"its replacement was updated with another path": {nothing, func(s *stage, m *machinesapi.Machine) {
			for _, n := range s.machines {
				if n != m {
					n.Config.Mounts[0].Path = "/other"
				}
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{world: newWorld(t)}
			s.there(db("shop:1"))
			s.spread = true
			m := s.nth(2)
			c.before(s, m)
			s.until(deploy.Move(s.state(), []bourse.MachineID{m.ID}, slow), deploy.UncordonMachine{})
			if len(s.machines) != 2 {
				t.Fatalf("got %d machines, want 2", len(s.machines))
			}
			c.meanwhile(s, m)
			p := deploy.Move(s.state(), []bourse.MachineID{m.ID}, slow)
			s.start(&p).finish()
			makes := slices.ContainsFunc(p.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.MakeMachine](s.Do) })
			if makes == c.continues || len(s.machines) != 1 || s.machines[m.ID] != nil {
				t.Errorf("%d machines\n%s", len(s.machines), dump(&p))
			}
		})
	}
}

// renamed returns the group db with another volume.
func renamed() deploy.Group {
	return with(db("shop:1"), func(g *deploy.Group) { g.Mount = &deploy.Mount{Volume: "more", Path: "/data", SizeGB: 10} })
}

// TestMoveAfterTheVolumeWasRenamed checks a move after an interrupted deploy that renamed the group's volumes. The
// replacement created by the deploy has a new volume without the former volume's data.
func TestMoveAfterTheVolumeWasRenamed(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t), opts: deploy.Options{Release: second, Version: 2}}
	s.there(db("shop:1"))
	s.spread = true
	m := s.nth(2)
	s.until(s.make(app(deploy.Rolling, renamed())), deploy.StopMachine{})
	p := deploy.Move(s.state(), []bourse.MachineID{m.ID}, slow)
	s.start(&p).finish()
	if s.machines[m.ID] != nil || len(s.machines) != 1 {
		t.Errorf("%d machines\n%s", len(s.machines), dump(&p))
	}
}

// TestMoveAfterADeployWasInterrupted checks a deploy that replaces a replacement created by an unfinished move. If the
// deploy is interrupted at any step, the machines must count as one, and it must be possible to finish the move.
func TestMoveAfterADeployWasInterrupted(t *testing.T) {
	t.Parallel()
	for done := 0; ; done++ {
		s := &stage{world: newWorld(t), opts: deploy.Options{Release: second, Version: 2}}
		s.there(db("shop:1"))
		s.spread = true
		id := s.nth(2).ID
		s.until(deploy.Move(s.state(), []bourse.MachineID{id}, slow), deploy.UncordonMachine{})
		p := s.make(app(deploy.Rolling, renamed()))
		s.done(p, done)
		if n := s.places(); n != 1 {
			t.Errorf("after %d steps, the machines count as %d\n%s", done, n, dump(&p))
		}
		if done == len(p.Steps) {
			return
		}
		move := deploy.Move(s.state(), []bourse.MachineID{id}, slow)
		s.start(&move).finish()
		for _, m := range s.machines {
			if len(s.machines) != 1 || m.State != bourse.StateStarted || m.Cordoned || m.Config.Metadata[deploy.KeyPaused] != "" {
				t.Errorf("after %d steps, moved by\n%s, machine %s of %d is %s, cordoned: %v, with metadata %v",
					done, dump(&move), m.ID, len(s.machines), m.State, m.Cordoned, m.Config.Metadata)
			}
		}
	}
}

// TestMovedAgainASpareFollows checks that a standby is updated if its primary is replaced twice: an unfinished plan has
// created a replacement on the same worker, and the replacement is already the standby's primary.
func TestMovedAgainASpareFollows(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t)}
	s.there(worker("shop:1"))
	all := slices.Sorted(maps.Keys(s.machines))
	is := slices.IndexFunc(all, func(id bourse.MachineID) bool { return len(s.machines[id].Config.Standbys) == 0 })
	from := s.machines[all[is]]
	p := deploy.Move(s.state(), all, slow)
	r := s.start(&p)
	for i, step := range p.Steps {
		if !deploy.Is[deploy.DestroyMachine](step.Do) || step.Machine != from.ID {
			r.do(i)
		}
	}
	s.settle()
	for _, m := range s.machines {
		if m.Config.Metadata[deploy.KeyReplaces] == string(from.ID) {
			m.Worker = from.Worker
		}
	}
	again := deploy.Move(s.state(), []bourse.MachineID{from.ID}, slow)
	s.start(&again).finish()
	for _, m := range s.machines {
		ids := m.Config.Standbys
		for _, id := range ids {
			if s.machines[id] == nil {
				t.Errorf("standby %s has primary %s, which no longer exists", m.ID, id)
			}
		}
	}
	if len(s.machines) != 2 {
		t.Errorf("got %d machines, want 2", len(s.machines))
	}
}

// TestUndoable checks that steps that lead to the destruction of a machine are not undone.
func TestUndoable(t *testing.T) {
	t.Parallel()
	zero := 0
	p := deploy.Plan{Steps: []deploy.Step{
		{ID: 0, Do: deploy.MakeMachine{}},
		{ID: 1, Do: deploy.AwaitReady{}, MadeBy: &zero, After: []int{0}},
		{ID: 2, Do: deploy.StopMachine{}, Machine: "a", After: []int{1}},
		{ID: 3, Do: deploy.DestroyMachine{}, Machine: "a", After: []int{2}},
		{ID: 4, Do: deploy.UpdateMachine{}, Machine: "b"},
		{ID: 5, Do: deploy.DestroyMachine{}, MadeBy: &zero, After: []int{1}},
	}}
	for _, c := range []struct{ begun, want []int }{
		{[]int{0, 1, 2}, []int{2, 0}},
		{[]int{0, 1, 2, 4}, []int{4, 2, 0}},
		{[]int{0, 1, 2, 3, 4}, []int{4}},
		{[]int{0, 1, 5}, []int{0}},
		{nil, nil},
	} {
		begun := make([]bool, len(p.Steps))
		for _, i := range c.begun {
			begun[i] = true
		}
		if got := p.Undoable(begun); !slices.Equal(got, c.want) {
			t.Errorf("after %v: %v, want %v", c.begun, got, c.want)
		}
	}
}

// TestSecretsAreNotShown checks that a plan's text contains only the names of changed
// environment variables, not their values.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	s := &stage{world: newWorld(t), opts: deploy.Options{Release: second}}
	s.there(web("shop:1"))
	p := s.make(app(deploy.Rolling, with(web("shop:1"), func(g *deploy.Group) { g.Config.Env = map[string]string{"PASSWORD": "hunter2"} })))
	if text := p.Text(0); strings.Contains(text, "hunter2") || !strings.Contains(text, "PASSWORD") {
		t.Error(text)
	}
}

// TestTextIsClean checks that a plan's text does not contain control characters.
func TestTextIsClean(t *testing.T) {
	t.Parallel()
	p := deploy.Plan{App: "shop", Warnings: []string{"a\x1b[2Jb\u009bc"}}
	if got := p.Text(0); strings.ContainsAny(got, "\x1b\u009b") {
		t.Errorf("%q", got)
	}
}

// TestMaxUnavailable checks that fractions are rounded up, and that at least one machine
// may be unavailable.
func TestMaxUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit float64
		lanes int
	}{{0, 2}, {0.1, 1}, {0.5, 3}, {1, 1}, {2.9, 2}, {99, 5}, {math.Inf(1), 5}, {math.NaN(), 2}, {-1, 2}} {
		s := &stage{world: newWorld(t), opts: deploy.Options{Release: second}}
		s.there(in(web("shop:1"), "fra", 6))
		a := app(deploy.Rolling, in(web("shop:2"), "fra", 6))
		a.MaxUnavailable = c.limit
		p := s.make(a)
		lanes := 0
		for _, step := range p.Steps {
			if slices.Equal(step.After, []int{1}) {
				lanes++
			}
		}
		if lanes != c.lanes {
			t.Errorf("limit %v: %d at once, want %d\n%s", c.limit, lanes, c.lanes, dump(&p))
		}
	}
}

// many returns a world with n machines in three regions.
func many(tb testing.TB, n int) *stage {
	s := &stage{world: newWorld(tb), opts: deploy.Options{Release: second, Version: 2}}
	s.there(in(web("shop:1"), "fra", n/2, "gru", n/4, "lhr", n-n/2-n/4))
	return s
}

func BenchmarkMake(b *testing.B) {
	for _, n := range []int{100, 1000} {
		have := many(b, n).state()
		wanted := in(web("shop:1"), "fra", n/2, "gru", n/4, "lhr", n-n/2-n/4)
		b.Run(fmt.Sprintf("same/%d", n), func(b *testing.B) {
			for b.Loop() {
				if p := deploy.Make(app(deploy.Rolling, wanted), have, deploy.Options{Release: second}); len(p.Steps) > 0 {
					b.Fatal(p.Text(0))
				}
			}
		})
		for _, s := range []deploy.Strategy{deploy.Rolling, deploy.BlueGreen} {
			b.Run(fmt.Sprintf("%s/%d", s, n), func(b *testing.B) {
				for b.Loop() {
					next := wanted
					next.Config.Image = "shop:2"
					p := deploy.Make(app(s, next), have, deploy.Options{Release: second})
					if err := sound(&p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestUndoLeavesLostMachines checks that a machine whose worker does not answer is left unchanged. Its former versions
// cannot be read, so it could be mistaken for a machine that the release created.
func TestUndoLeavesLostMachines(t *testing.T) {
	m := machinesapi.Machine{Summary: machinesapi.Summary{ID: "148e21ea1d53a0", State: bourse.StateStarted, Region: "gru"}}
	m.HostStatus = machinesapi.HostUnreachable
	m.IncompleteConfig = &bourse.Config{Metadata: map[string]string{deploy.KeyPlatform: deploy.Platform, deploy.KeyRelease: "r2"}}
	p := deploy.Undo(deploy.State{App: "shop", Machines: []machinesapi.Machine{m}}, "r2", deploy.Pace{})
	if len(p.Steps) > 0 || len(p.Warnings) != 1 {
		t.Errorf("steps %+v, warnings %q", p.Steps, p.Warnings)
	}
}

// TestStepAsJSON checks that the fields of a step and of its action are encoded as members
// of one object.
func TestStepAsJSON(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]deploy.Step{
		`{"do":"stop machine","id":3,"after":[1,2],"machine":"a","why":"it moves"}`: {
			ID: 3, After: []int{1, 2}, Machine: "a", Why: "it moves", Do: deploy.StopMachine{},
		},
		`{"do":"create volume","id":0,"region":"fra","why":"","volume_name":"data","size_gb":2}`: {
			Region: "fra", Do: deploy.MakeVolume{Name: "data", SizeGB: 2},
		},
		`{"do":"destroy machine","id":1,"made_by":0,"why":""}`: {ID: 1, MadeBy: new(0), Do: deploy.DestroyMachine{}},
	} {
		if got, err := json.Marshal(s); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// fill sets all fields of a struct that are encoded as JSON to values that are not empty.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() != reflect.Struct { // the encoding does not omit a pointer to an empty config
			fill(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"key": "value"}))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1)
	}
}

// jsonNames returns the names of a struct's fields as they are encoded in JSON.
func jsonNames(t reflect.Type) []string {
	var out []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// TestEveryActionAsJSON checks that a step's JSON contains every field of the step and of
// its action, which requires that no two fields have the same name.
func TestEveryActionAsJSON(t *testing.T) {
	t.Parallel()
	for _, empty := range deploy.Actions() {
		do := reflect.New(reflect.TypeOf(empty))
		fill(do.Elem())
		var s deploy.Step
		fill(reflect.ValueOf(&s).Elem())
		s.Do = do.Elem().Interface().(deploy.Action)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			t.Fatal(err)
		}
		want := slices.Concat([]string{"do"}, jsonNames(reflect.TypeOf(s)), jsonNames(do.Elem().Type()))
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", s.Do, got, want)
		}
		var step deploy.Step
		action := reflect.New(do.Elem().Type())
		if err := errors.Join(json.Unmarshal(text, &step), json.Unmarshal(text, action.Interface())); err != nil {
			t.Fatal(err)
		}
		step.Do = action.Elem().Interface().(deploy.Action)
		if diff := cmp.Diff(s, step); diff != "" {
			t.Errorf("-encoded +decoded\n%s", diff)
		}
	}
}

// TestActionsAreComplete checks that Actions lists every type in action.go that has a
// String method.
func TestActionsAreComplete(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "action.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "String" && f.Recv != nil {
			want = append(want, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	names := map[string]bool{}
	for _, a := range deploy.Actions() {
		got = append(got, reflect.TypeOf(a).Name())
		names[a.String()] = true
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(names) != len(want) {
		t.Errorf("types %q with names %v, want types %q with a name each", got, slices.Sorted(maps.Keys(names)), want)
	}
}
