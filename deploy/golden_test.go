package deploy_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

var update = flag.Bool("update", false, "write the golden files")

// stage is the world for which a case is planned, with the plan's options.
type stage struct {
	*world
	opts deploy.Options
}

func group(name, image string, serves bool) deploy.Group {
	return deploy.Group{Name: name, Config: config(image, serves), Spare: true}
}

func web(image string) deploy.Group    { return group("web", image, true) }
func worker(image string) deploy.Group { return group("worker", image, false) }

func db(image string) deploy.Group {
	g := group("db", image, false)
	g.Mount = &deploy.Mount{Volume: "data", Path: "/data", SizeGB: 10}
	return g
}

// in sets a group's number of machines in each region, as in in(g, "fra", 2, "gru", 1).
func in(g deploy.Group, counts ...any) deploy.Group {
	g.Counts = []deploy.Count{}
	for i := 0; i < len(counts); i += 2 {
		g.Counts = append(g.Counts, deploy.Count{Region: bourse.Region(counts[i].(string)), Count: counts[i+1].(int)})
	}
	return g
}

func with(g deploy.Group, change func(*deploy.Group)) deploy.Group {
	change(&g)
	return g
}

func app(s deploy.Strategy, groups ...deploy.Group) deploy.App {
	return deploy.App{Name: "shop", Primary: "fra", Strategy: s, MaxUnavailable: 1, Groups: groups}
}

// there deploys the groups.
func (s *stage) there(groups ...deploy.Group) {
	if len(groups) == 0 {
		return
	}
	p := deploy.Make(app(deploy.Immediate, groups...), s.state(), deploy.Options{Release: first, Version: 1})
	s.start(&p).finish()
}

// done executes the first n steps of a plan.
func (s *stage) done(p deploy.Plan, n int) {
	r := s.start(&p)
	for i := range min(n, len(p.Steps)) {
		r.do(i)
	}
	s.settle()
}

// until executes the steps of a plan up to the last one with the given action.
func (s *stage) until(p deploy.Plan, do deploy.Action) {
	n := 0
	for i, step := range p.Steps {
		if step.Do.String() == do.String() {
			n = i + 1
		}
	}
	s.done(p, n)
}

// nth returns the n-th machine that was created.
func (s *stage) nth(n int) *machinesapi.Machine {
	for id, m := range s.machines {
		if strings.HasSuffix(string(id), string("0123456789"[n])) {
			return m
		}
	}
	s.t.Fatalf("no machine %d", n)
	return nil
}

func (s *stage) make(a deploy.App) deploy.Plan {
	return deploy.Make(a, s.state(), s.opts)
}

// golden compares a plan with a golden file.
func golden(t *testing.T, name string, p *deploy.Plan) {
	t.Helper()
	got := p.Text(80)
	if len(p.Steps) > 0 {
		got += "\n" + dump(p)
	}
	file := filepath.Join("testdata", "plans", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestPlans compares the text and the steps of plans with golden files.
func TestPlans(t *testing.T) {
	t.Parallel()
	cases := slices.Concat(firstCases(), updateCases(), countCases(), stateCases(), halfwayCases(), fleetCases())
	const fewest = 60
	if len(cases) < fewest {
		t.Errorf("%d cases, want %d", len(cases), fewest)
	}
	names := map[string]bool{}
	for _, c := range cases {
		names[c.name+".txt"] = true
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &stage{world: newWorld(t), opts: deploy.Options{Release: second, Version: 2}}
			p := c.plan(s)
			golden(t, c.name, &p)
			if len(p.Refused) > 0 {
				return
			}
			if err := sound(&p); err != nil {
				t.Error(err)
			}
		})
	}
	files, err := os.ReadDir(filepath.Join("testdata", "plans"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !names[f.Name()] {
			t.Errorf("%s belongs to no case", f.Name())
		}
	}
}
