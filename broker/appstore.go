package broker

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/singleflight"

	"github.com/bourse-dev/bourse"
)

// AppKeeper keeps apps for the brokers.
type AppKeeper interface {
	// Apps gives every record, tombstones included.
	Apps(ctx context.Context, to bourse.Member) ([]bourse.App, error)
	// PutApp merges a record into the worker's and gives the merge.
	PutApp(ctx context.Context, to bourse.Member, app bourse.App) (bourse.App, error)
}

// DefaultApp exists without being made, so that a first machine needs no
// ceremony.
const DefaultApp = bourse.AppName("default")

// DefaultOrg owns what names no organization.
const DefaultOrg = "personal"

// appMemory is how long an app that was seen is taken to be there without
// asking. So long may an app that another broker deleted still get a machine.
const appMemory = 5 * time.Second

// maxApps bounds how many are remembered; past it the memory starts anew.
const maxApps = 1 << 12

// appStore finds and changes apps. The workers keep them: written to all that
// answer, read from any, merged by bourse.App.Merge. The replicated view will
// take its place.
//
// Two brokers that make one name within the same milliseconds may both be told
// yes; every reader agrees from then on which of the two apps it is.
type appStore struct {
	keeper   AppKeeper
	members  func() []bourse.Member
	patience time.Duration
	now      func() time.Time
	lookups  singleflight.Group // one question for all requests that miss at once

	mu     sync.Mutex
	recent map[bourse.AppName]seenApp
}

type seenApp struct {
	app bourse.App
	at  time.Time
}

func newAppStore(keeper AppKeeper, members func() []bourse.Member, patience time.Duration, now func() time.Time) *appStore {
	return &appStore{keeper: keeper, members: members, patience: patience, now: now, recent: map[bourse.AppName]seenApp{}}
}

// records gives what the workers know of every name, tombstones included, and
// which of them did not answer. Codes: unavailable.
func (s *appStore) records(ctx context.Context) (map[bourse.AppName]bourse.App, []bourse.WorkerID, error) {
	answers := ask(ctx, s.patience, s.members(), s.keeper.Apps)
	if err := noneAnswered(answers); err != nil {
		return nil, nil, err
	}
	out := map[bourse.AppName]bourse.App{}
	for _, a := range answers {
		for _, app := range a.got {
			if known, ok := out[app.Name]; ok {
				app = known.Merge(app)
			}
			out[app.Name] = app
		}
	}
	return out, silent(answers), nil
}

// list gives the living apps by name, the default one only once it was used.
func (s *appStore) list(ctx context.Context) ([]bourse.App, []bourse.WorkerID, error) {
	all, missing, err := s.records(ctx)
	if err != nil {
		return nil, nil, err
	}
	var out []bourse.App
	for _, app := range all {
		if app.DeletedAt == nil {
			out = append(out, app)
		}
	}
	slices.SortFunc(out, func(a, b bourse.App) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out, missing, nil
}

// find asks the workers for a living app. Codes: not_found, unavailable.
func (s *appStore) find(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	all, _, err := s.records(ctx)
	if err != nil {
		return bourse.App{}, err
	}
	app, ok := living(all, name)
	if !ok {
		s.forget(name)
		return bourse.App{}, errNoApp()
	}
	s.remember(app)
	return app, nil
}

// living finds an app that is not deleted among the records of all.
func living(all map[bourse.AppName]bourse.App, name bourse.AppName) (bourse.App, bool) {
	app, ok := all[name]
	switch {
	case ok && app.DeletedAt == nil:
		return app, true
	case name == DefaultApp:
		return defaultApp(app), true
	}
	return bourse.App{}, false
}

// defaultApp is the app that exists without being made, given what was there
// before: nothing, or a tombstone. Every broker makes the same one of it.
func defaultApp(before bourse.App) bourse.App {
	app := bourse.App{Name: DefaultApp, Org: DefaultOrg, CreatedAt: time.UnixMilli(0).UTC()}
	if before.DeletedAt != nil {
		app.CreatedAt = *before.DeletedAt
	}
	app.ID = idOf("default app", before.ID)
	return app
}

// idOf makes an id of texts: the same texts give the same id.
func idOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	var id ulid.ULID
	copy(id[:], sum[:])
	return id.String()
}

// recall gives an app seen in the last seconds, and finds it otherwise. Codes:
// not_found, unavailable.
func (s *appStore) recall(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	s.mu.Lock()
	seen, ok := s.recent[name]
	s.mu.Unlock()
	if ok && s.now().Sub(seen.at) < appMemory {
		return seen.app, nil
	}
	// The question is shared, so it must not end with the caller who happened
	// to ask it first; find has its own deadline.
	shared := context.WithoutCancel(ctx)
	found, err, _ := s.lookups.Do(string(name), func() (any, error) { return s.find(shared, name) })
	app, _ := found.(bourse.App)
	return app, err
}

func (s *appStore) remember(app bourse.App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) >= maxApps {
		clear(s.recent)
	}
	s.recent[app.Name] = seenApp{app, s.now()}
}

func (s *appStore) forget(name bourse.AppName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, name)
}
