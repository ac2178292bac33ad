package state

import (
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// Ownership reports whether a record belongs to an app, by the app that the
// record names and when it was made; see [bourse.App.Owns].
type Ownership func(app bourse.AppName, id string, made time.Time) bool

// OwnerOf returns the ownership of the app that another record here names. Of
// records without an id, which are of a former release, the names decide.
func OwnerOf(app bourse.AppName, id string) Ownership {
	return func(otherApp bourse.AppName, otherID string, _ time.Time) bool {
		return app == otherApp && (id == otherID || id == "" || otherID == "")
	}
}

// Foreign reports whether a record is of another app's order. Brokers derive an
// order's id from its app's, so none of them asks for such an order.
func Foreign(rec *store.OrderRecord, app *bourse.App) bool {
	if t := rec.Task; t != nil {
		return !app.Owns(t.App, t.AppID, rec.At)
	}
	return rec.Decision.App != "" && !rec.Decision.OwnedBy(app)
}

// MergeApp merges an app's record into the worker's own copy.
func MergeApp(tx *store.Tx, app bourse.App) error {
	old, ok, err := tx.App(app.Name)
	if err != nil {
		return err
	}
	merged := app
	if ok {
		if merged = old.Merge(app); merged.ID == old.ID && (merged.DeletedAt == nil) == (old.DeletedAt == nil) {
			return nil
		}
	}
	return tx.PutApp(merged)
}

// App returns the app of a name as far as the worker knows, false when there is
// none. The default app is there without having been made.
func (s *State) App(name bourse.AppName) (app bourse.App, ok bool, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		known, found, err := tx.App(name)
		switch {
		case err != nil:
			return err
		case found && known.DeletedAt == nil:
			app, ok = known, true
		case name == bourse.DefaultAppName:
			app, ok = bourse.DefaultApp(known), true
		}
		return nil
	})
	return app, ok, err
}

// Apps lists the records of apps, or that of one name, tombstones included.
func (s *State) Apps(name bourse.AppName) ([]bourse.App, error) {
	apps := []bourse.App{}
	err := s.Store.View(func(tx *store.Tx) error {
		if name != "" {
			app, ok, err := tx.App(name)
			if ok {
				apps = append(apps, app)
			}
			return err
		}
		for app, err := range tx.Apps() {
			if err != nil {
				return err
			}
			apps = append(apps, app)
		}
		return nil
	})
	return apps, err
}
