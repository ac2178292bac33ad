package state

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// Foreign reports whether rec belongs to an app other than app. With a correct broker that never
// happens, because order ids are derived from the app's id.
func Foreign(rec *store.OrderRecord, app *bourse.App) bool {
	if t := rec.Task; t != nil {
		return !app.Owns(t.App, t.AppID, rec.At)
	}
	return rec.Decision.App != "" && !rec.Decision.OwnedBy(app)
}

// MergeApp merges an app's record into the worker's copy.
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

// App returns the worker's record of the named app. ok is false if there is no record. The default
// app always exists.
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

// Apps returns the records of all apps, including tombstones. If name is set, it returns only the
// record of the app with that name.
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
