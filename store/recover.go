package store

import (
	"time"

	"github.com/bourse-dev/bourse/store/kv"
)

// Report describes the contents of a store's files and any damage to them.
type Report struct {
	Version  int      `json:"version"`         // version of the schema
	Keys     int64    `json:"keys"`            // number of intact keys in the snapshot
	Records  int      `json:"records"`         // number of intact records in the log that the snapshot does not include
	Machines int      `json:"machines"`        // total number of machine records
	Damage   []string `json:"damage"`          // a description of each damaged place
	Lost     []string `json:"lost,omitempty"`  // set by Recover: the number of lost keys in each bucket that has lost any
	Saved    []string `json:"saved,omitempty"` // set by Recover: new names of the damaged files
}

func report(r kv.Report) Report {
	return Report{r.Version, r.Keys, r.Records, r.Intact[bucketMachines], r.Damage, r.Lost, r.Saved}
}

// Check verifies the whole store in a directory without changing it. It returns
// CodeAlreadyExists if a daemon has the store open, and CodeNotFound if the directory contains
// no store.
func Check(dir string) (Report, error) {
	r, err := kv.Check(dir, schema())
	return report(r), err
}

// Recover copies all intact records of a damaged store into a new one, recomputes the derived
// records, and retains the damaged files under other names. It returns Check's errors, and
// CodeFailedPrecondition if nothing is damaged or both heads of the snapshot are damaged.
func Recover(dir string, now time.Time) (Report, error) {
	r, err := kv.Recover(dir, schema(), now, derive)
	return report(r), err
}

// derive computes and writes all derived records. The store must not contain any yet.
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
