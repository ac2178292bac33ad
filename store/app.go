package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// App gives an app's record, tombstones included.
func (t *Tx) App(name bourse.AppName) (bourse.App, bool, error) {
	var app bourse.App
	ok, err := t.record(bucketApps, []byte(name), &app)
	return app, ok, err
}

// PutApp inserts an app's record or replaces it; it does not merge.
func (t *Tx) PutApp(app bourse.App) error {
	k, err := key(string(app.Name))
	if err != nil {
		return err
	}
	return t.putRecord(bucketApps, k, app)
}

// Apps gives every app in order of name, tombstones included.
func (t *Tx) Apps() iter.Seq2[bourse.App, error] { return all[bourse.App](t, bucketApps) }

// all decodes every record of a bucket in order of key. It ends at the first
// that is damaged.
func all[T any](t *Tx, bucket string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range t.from(bucket, nil) {
			var record T
			err := decode(v, &record)
			if !yield(record, err) || err != nil {
				return
			}
		}
	}
}
