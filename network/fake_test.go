package network

import (
	"slices"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
)

// fakeNames implements Names with a few apps and machines.
type fakeNames struct {
	mu       sync.Mutex
	apps     map[bourse.AppName]bourse.App
	machines map[bourse.AppName][]bourse.Machine
	err      error
	asked    int
}

func (f *fakeNames) App(name bourse.AppName) (bourse.App, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	a, ok := f.apps[name]
	return a, ok, f.err
}

func (f *fakeNames) Machines(app *bourse.App) ([]bourse.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.machines[app.Name]), f.err
}

func (f *fakeNames) Apps() ([]bourse.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []bourse.App
	for _, a := range f.apps {
		out = append(out, a)
	}
	return out, f.err
}

// hold adds started machines and their apps.
func (f *fakeNames) hold(specs ...Spec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apps == nil {
		f.apps, f.machines = map[bourse.AppName]bourse.App{}, map[bourse.AppName][]bourse.Machine{}
	}
	for _, s := range specs {
		org, name, _ := strings.Cut(s.Network, "/")
		f.apps[s.App] = bourse.App{Name: s.App, Org: org, Network: name}
		f.machines[s.App] = append(f.machines[s.App], bourse.Machine{
			ID: s.Machine, App: s.App, Region: "mad", State: bourse.StateStarted, PrivateIP: s.address(),
		})
	}
}

// fail makes all methods return err, or succeed again if err is nil.
func (f *fakeNames) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}
