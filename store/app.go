package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

var apps = table[bourse.App]{bucket: bucketApps}

// App returns the record of the app with this name, and whether it exists. A deleted app still has
// a record.
func (t *Tx) App(name bourse.AppName) (bourse.App, bool, error) { return apps.get(t, []byte(name)) }

// PutApp inserts or replaces an app's record. It overwrites an existing record instead of merging
// the two.
func (t *Tx) PutApp(app bourse.App) error {
	k, err := key(string(app.Name))
	if err != nil {
		return err
	}
	return apps.put(t, k, &app)
}

// Apps returns all apps sorted by name, including deleted ones.
func (t *Tx) Apps() iter.Seq2[bourse.App, error] { return apps.all(t) }
