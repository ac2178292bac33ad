package store

import (
	"time"

	"github.com/bourse-dev/bourse/store/kv"
)

// Report is what a look at a store's files has found.
type Report struct {
	Version  int      `json:"version"`        // of the schema
	Keys     int64    `json:"keys"`           // that are whole, in the file
	Records  int      `json:"records"`        // that are whole, in the log and not in the file
	Machines int      `json:"machines"`       // records of machines in all
	Damage   []string `json:"damage"`         // what is not as it was written
	Lost     []string `json:"lost,omitempty"` // by Salvage: how much of each bucket
	Kept     []string `json:"kept,omitempty"` // by Salvage: the names under which the damaged files are kept
}

func report(r kv.Report) Report {
	return Report{r.Version, r.Keys, r.Records, r.Have[bucketMachines], r.Damage, r.Lost, r.Kept}
}

// Check looks at all of the store in a directory, and changes nothing.
// CodeAlreadyExists: a daemon has it. CodeNotFound: there is none.
func Check(dir string) (Report, error) {
	r, err := kv.Check(dir, schema())
	return report(r), err
}

// Salvage makes a new store of what is whole in a damaged one, whose files it
// keeps under other names. What follows from other records is computed again.
// CodeFailedPrecondition: nothing is damaged, or the file has no checksums, so
// that it is not known what is whole.
func Salvage(dir string, now time.Time) (Report, error) {
	r, err := kv.Salvage(dir, schema(), now, derive)
	return report(r), err
}

// derive writes what follows from the records of a file that has nothing but them.
func derive(t kv.Tx) error {
	logged := uint64Of(t.Get(bucketMeta, keyLogged))
	for k := range t.Range(bucketLog, nil) {
		logged = max(logged, uint64Of(k))
	}
	derived, err := derived(&Tx{kv: t})
	if err != nil {
		return err
	}
	for bucket, keys := range derived {
		for k, v := range keys {
			if err := t.Put(bucket, []byte(k), v); err != nil {
				return err
			}
		}
	}
	return t.Put(bucketMeta, keyLogged, uint64Bytes(logged))
}
