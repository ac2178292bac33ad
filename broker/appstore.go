package broker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/bourse-dev/bourse"
)

// AppKeeper reads and writes the copies of apps that workers keep, for when
// the view is not there.
type AppKeeper interface {
	// Apps gives every record, tombstones included.
	Apps(ctx context.Context, to bourse.Member) ([]bourse.App, error)
	// PutApp merges a record into the worker's and gives the merge.
	PutApp(ctx context.Context, to bourse.Member, app bourse.App) (bourse.App, error)
}

// DefaultApp exists without being made, so that a first machine needs no
// ceremony.
const DefaultApp = bourse.DefaultAppName

// DefaultOrg owns what names no organization.
const DefaultOrg = bourse.DefaultOrg

// appMemory is how long an app that was seen is taken to be there without
// looking. So long may an app that another broker deleted still get a machine.
const appMemory = time.Second

// maxApps bounds how many are remembered; past it the memory starts anew.
const maxApps = 1 << 12

// secondLooks is the least time between two questions to all workers for a
// name that a synced view does not have. Who asks for names that do not exist
// must not keep the whole cluster busy.
const secondLooks = 50 * time.Millisecond

// appStore finds and changes apps, which the view keeps. A name that the view
// does not have is looked for among the workers' copies: it may have been made
// elsewhere a moment ago, or the view may be new. Records are merged by
// bourse.App.Merge.
//
// Two brokers that make one name before they have heard of each other may both
// be told yes; every reader agrees from then on which of the two apps it is.
type appStore struct {
	*Config
	lookups singleflight.Group // one look for all requests that miss at once

	mu     sync.Mutex
	recent map[bourse.AppName]seenApp
	looked time.Time // when the workers were last asked for what the view does not have
}

type seenApp struct {
	app bourse.App
	at  time.Time
}

func newAppStore(config *Config) *appStore {
	return &appStore{Config: config, recent: map[bourse.AppName]seenApp{}}
}

// appRecords is what is known of names, tombstones included.
type appRecords map[bourse.AppName]bourse.App

func (r appRecords) merge(apps ...bourse.App) {
	for _, app := range apps {
		if known, ok := r[app.Name]; ok {
			app = known.Merge(app)
		}
		r[app.Name] = app
	}
}

// one gives what the view has of a name.
func (s *appStore) one(ctx context.Context, name bourse.AppName) (appRecords, error) {
	out := appRecords{}
	app, ok, err := s.View.App(ctx, name)
	if err == nil && ok {
		out.merge(app)
	}
	return out, err
}

// all gives what the view has.
func (s *appStore) all(ctx context.Context) (appRecords, error) {
	out := appRecords{}
	apps, err := s.View.Apps(ctx)
	if err == nil {
		out.merge(apps...)
	}
	return out, err
}

// recorded tells whether the view knows the name.
func (s *appStore) recorded(ctx context.Context, name bourse.AppName) bool {
	_, ok, err := s.View.App(ctx, name)
	return ok && err == nil
}

// look is what the view said to a question.
type look struct {
	known  appRecords
	failed error // the view could not be read
	enough bool  // known answers the question, as far as the view can be relied on
	search bool  // ask the workers what a synced view does not have
}

// complete adds what the workers know to what the view has, where that is not
// enough or cannot be relied on. It tells which workers that were needed did
// not answer. Codes: unavailable.
func (s *appStore) complete(ctx context.Context, l look) (appRecords, []bourse.WorkerID, error) {
	if l.failed != nil {
		s.Log.WarnContext(ctx, "view not read", slog.Any("err", l.failed))
	}
	synced := l.failed == nil && s.View.Synced()
	if synced && !l.search {
		return l.known, nil, nil
	}
	answers := ask(ctx, s.Patience, s.Directory.Workers(), s.Workers.Apps)
	for _, a := range answers {
		if a.err == nil {
			l.known.merge(a.got...)
		}
	}
	if synced {
		return l.known, nil, nil // the second look was more than was needed
	}
	if err := noneAnswered(answers); err != nil && !l.enough {
		return nil, nil, err
	}
	return l.known, silent(answers), nil
}

// maySearch tells whether it is time for another second look.
func (s *appStore) maySearch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if now.Sub(s.looked) < secondLooks {
		return false
	}
	s.looked = now
	return true
}

// list gives the living apps by name, the default one if it was made, or is
// used.
func (s *appStore) list(ctx context.Context, used machineCounts) ([]bourse.App, []bourse.WorkerID, error) {
	known, err := s.all(ctx)
	known, missing, err := s.complete(ctx, look{known: known, failed: err, enough: len(known) > 0, search: len(known) == 0})
	if err != nil {
		return nil, nil, err
	}
	if app, ok := living(known, DefaultApp); ok && used.of(&app) > 0 {
		known[DefaultApp] = app
	}
	var out []bourse.App
	for _, app := range known {
		if app.DeletedAt == nil {
			out = append(out, app)
		}
	}
	slices.SortFunc(out, func(a, b bourse.App) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out, missing, nil
}

// find looks for a living app. Codes: not_found, unavailable.
func (s *appStore) find(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	known, err := s.one(ctx, name)
	_, enough := living(known, name)
	search := !enough && s.maySearch()
	known, missing, err := s.complete(ctx, look{known: known, failed: err, enough: enough, search: search})
	if err != nil {
		return bourse.App{}, err
	}
	app, ok := living(known, name)
	if _, deleted := known[name]; !ok && !deleted && len(missing) > 0 {
		return bourse.App{}, bourse.Errorf(bourse.CodeUnavailable, "app %s: %s, and no one else knows it", name, doNotAnswer(missing))
	}
	if !ok && !search && len(known) == 0 { // it is not known to be gone, only not looked for again
		if seen, ok := s.seen(name); ok {
			return seen, nil
		}
	}
	if !ok {
		s.forget(name)
		return bourse.App{}, errNoApp()
	}
	s.remember(app)
	return app, nil
}

// living finds an app that is not deleted among records.
func living(known appRecords, name bourse.AppName) (bourse.App, bool) {
	app, ok := known[name]
	switch {
	case ok && app.DeletedAt == nil:
		return app, true
	case name == DefaultApp:
		return bourse.DefaultApp(app), true
	}
	return bourse.App{}, false
}

// recall gives an app seen in the last second, and finds it otherwise. Codes:
// not_found, unavailable.
func (s *appStore) recall(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	if app, ok := s.seen(name); ok {
		return app, nil
	}
	// The look is shared, so it must not end with the caller who happened to
	// begin it; it has its own deadline.
	shared := context.WithoutCancel(ctx)
	found, err, _ := s.lookups.Do(string(name), func() (any, error) {
		ctx, cancel := context.WithTimeout(shared, s.Patience)
		defer cancel()
		return s.find(ctx, name)
	})
	app, _ := found.(bourse.App)
	return app, err
}

// seen gives an app that was found in the last second.
func (s *appStore) seen(name bourse.AppName) (bourse.App, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.recent[name]
	return seen.app, ok && s.Now().Sub(seen.at) < appMemory
}

func (s *appStore) remember(app bourse.App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) >= maxApps {
		clear(s.recent)
	}
	s.recent[app.Name] = seenApp{app, s.Now()}
}

func (s *appStore) forget(name bourse.AppName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, name)
}
