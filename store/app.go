package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

var apps = table[bourse.App]{bucket: bucketApps}

// App returns an app's record, tombstones included.
func (t *Tx) App(name bourse.AppName) (bourse.App, bool, error) { return apps.get(t, []byte(name)) }

// PutApp inserts an app's record or replaces it; it does not merge.
func (t *Tx) PutApp(app bourse.App) error {
	k, err := key(string(app.Name))
	if err != nil {
		return err
	}
	return apps.put(t, k, &app)
}

// Apps returns every app in order of name, tombstones included.
func (t *Tx) Apps() iter.Seq2[bourse.App, error] { return apps.all(t) }
