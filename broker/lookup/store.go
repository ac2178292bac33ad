package lookup

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

// appCacheTime is how long a broker assumes that an app still exists after finding it. During this time, callers can
// still create machines in an app that another broker has deleted.
const appCacheTime = time.Second

// maxApps is the maximum number of cached apps. A full cache is cleared.
const maxApps = 1 << 12

// searchInterval is the minimum time between two searches of all workers for an app that is missing from a synced view.
// It limits the load caused by requests for missing apps.
const searchInterval = 50 * time.Millisecond

// Apps finds, creates and deletes apps. If there are several records of an app, it merges them with
// bourse.App.Merge.
//
// If two brokers create an app with the same name at the same time, both may report success. Afterward, all readers
// agree on which of the two apps exists.
type Apps struct {
	Sources
	copies  func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)
	lookups singleflight.Group // combines concurrent lookups of the same app

	mu         sync.Mutex
	recent     map[bourse.AppName]seenApp
	lastSearch time.Time // time when the workers were last asked for an app that is not in the view
}

type seenApp struct {
	app bourse.App
	at  time.Time
}

// NewApps returns an Apps with an empty cache. copies must return a worker's stored copies of app records after
// verifying them.
func NewApps(s Sources, copies func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)) *Apps {
	return &Apps{Sources: s, copies: copies, recent: map[bourse.AppName]seenApp{}}
}

// appRecords contains records of apps by name, including tombstones.
type appRecords map[bourse.AppName]bourse.App

func (r appRecords) merge(apps ...bourse.App) {
	for _, app := range apps {
		if known, ok := r[app.Name]; ok {
			app = known.Merge(app)
		}
		r[app.Name] = app
	}
}

// one reads the records of an app from the view.
func (s *Apps) one(ctx context.Context, name bourse.AppName) (appRecords, error) {
	out := appRecords{}
	app, err := s.View.App(ctx, name)
	if err == nil && app != nil {
		out.merge(*app)
	}
	return out, err
}

// all reads the records of all apps from the view.
func (s *Apps) all(ctx context.Context) (appRecords, error) {
	out := appRecords{}
	apps, err := s.View.Apps(ctx)
	if err == nil {
		out.merge(apps...)
	}
	return out, err
}

// viewResult contains the records read from the view, and whether the workers must be asked as well.
type viewResult struct {
	known      appRecords
	failed     error // error if the view could not be read
	sufficient bool  // no need to ask the workers if the view is reliable
	search     bool  // ask the workers even if the view is in sync
}

// complete adds the workers' records to the view's records if the view is insufficient or
// unreliable. It also returns the workers whose answers were needed but did not arrive. Errors:
// unavailable.
func (s *Apps) complete(ctx context.Context, l viewResult) (appRecords, []bourse.WorkerID, error) {
	if l.failed != nil {
		s.Log.WarnContext(ctx, "read view failed", slog.Any("err", l.failed))
	}
	synced := l.failed == nil && s.View.InSync()
	if synced && !l.search {
		return l.known, nil, nil
	}
	answers := Ask(ctx, s.Timeout, s.Directory.Workers(), s.copies)
	for _, a := range answers {
		if a.Err == nil {
			l.known.merge(a.Got...)
		}
	}
	if synced {
		return l.known, nil, nil // the search was only a precaution, so missing answers do not matter
	}
	if err := NoneAnswered(answers); err != nil && !l.sufficient {
		return nil, nil, err
	}
	return l.known, Unresponsive(answers), nil
}

// maySearch reports whether searchInterval has passed since the last search.
func (s *Apps) maySearch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	if now.Sub(s.lastSearch) < searchInterval {
		return false
	}
	s.lastSearch = now
	return true
}

// List returns the existing apps, sorted by name. It includes the default app only if the app has been created
// explicitly, or if the app has machines according to used.
func (s *Apps) List(ctx context.Context, used Counts) ([]bourse.App, []bourse.WorkerID, error) {
	known, err := s.all(ctx)
	known, missing, err := s.complete(ctx, viewResult{known: known, failed: err, sufficient: len(known) > 0, search: len(known) == 0})
	if err != nil {
		return nil, nil, err
	}
	if app, ok := existing(known, bourse.DefaultAppName); ok && used.Of(&app) > 0 {
		known[bourse.DefaultAppName] = app
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

// Find returns an existing app. Errors: not_found, unavailable.
func (s *Apps) Find(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	known, err := s.one(ctx, name)
	_, enough := existing(known, name)
	search := !enough && s.maySearch()
	known, missing, err := s.complete(ctx, viewResult{known: known, failed: err, sufficient: enough, search: search})
	if err != nil {
		return bourse.App{}, err
	}
	app, ok := existing(known, name)
	if _, deleted := known[name]; !ok && !deleted && len(missing) > 0 {
		return bourse.App{}, bourse.Errorf(bourse.CodeUnavailable, "app %s: %s, and no other worker has a record of the app", name, UnresponsiveText(missing))
	}
	if !ok && !search && len(known) == 0 { // there is no record of a deletion, and the workers were not asked this time
		if seen, ok := s.seen(name); ok {
			return seen, nil
		}
	}
	if !ok {
		s.forget(name)
		return bourse.App{}, ErrNoApp
	}
	s.remember(app)
	return app, nil
}

// existing returns the app with the given name from the records. It returns false if the app has no
// record or is deleted. The default app always exists.
func existing(known appRecords, name bourse.AppName) (bourse.App, bool) {
	app, ok := known[name]
	switch {
	case ok && app.DeletedAt == nil:
		return app, true
	case name == bourse.DefaultAppName:
		return bourse.DefaultApp(app), true
	}
	return bourse.App{}, false
}

// FindCached is like [Apps.Find], but returns a cached app if it was found less than appCacheTime ago.
// Errors: not_found, unavailable.
func (s *Apps) FindCached(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	if app, ok := s.seen(name); ok {
		return app, nil
	}
	// Several callers share the lookup, so it must not be canceled when the caller that started it
	// disconnects. Instead, it has its own deadline.
	shared := context.WithoutCancel(ctx)
	found, err, _ := s.lookups.Do(string(name), func() (any, error) {
		ctx, cancel := context.WithTimeout(shared, s.Timeout)
		defer cancel()
		return s.Find(ctx, name)
	})
	app, _ := found.(bourse.App)
	return app, err
}

// seen returns an app from the cache, and reports whether the app was found less than appCacheTime
// ago.
func (s *Apps) seen(name bourse.AppName) (bourse.App, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.recent[name]
	return seen.app, ok && s.Now().Sub(seen.at) < appCacheTime
}

func (s *Apps) remember(app bourse.App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) >= maxApps {
		clear(s.recent)
	}
	s.recent[app.Name] = seenApp{app, s.Now()}
}

func (s *Apps) forget(name bourse.AppName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recent, name)
}
