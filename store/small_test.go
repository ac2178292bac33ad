package store

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// What the small buckets hold is in memory as it is below: after an open, and
// after a transaction that was undone. [Tx.Verify] sees where it is not.
func TestSmallBuckets(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	kept, undone := taskOrder(1, 3), taskOrder(2, 5)
	update(t, s, func(tx *Tx) error { return tx.TaskBegun(kept) })
	if err := s.Update(t.Context(), func(tx *Tx) error {
		if err := tx.TaskBegun(undone); err != nil {
			return err
		}
		if _, err := tx.TaskEnded(kept.ID, taskEnd(&kept, nil), kept.At); err != nil {
			return err
		}
		return errReadOnly
	}); err == nil {
		t.Fatal("an error of the function is none of Update")
	}
	for _, how := range []string{"written", "opened"} {
		if how == "opened" {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openIn(t, dir)
		}
		var open []bourse.OrderID
		var sum bourse.Amounts
		if err := s.View(func(tx *Tx) (err error) {
			for k := range tx.from(bucketTaskOpen, nil) {
				open = append(open, bourse.OrderID(k))
			}
			sum, err = tx.Committed()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if len(open) != 1 || open[0] != kept.ID || len(sum) != 1 || sum[0].Amount != kept.Task.Takes[0].Amount {
			t.Errorf("%s: open %v, committed %v", how, open, sum)
		}
		view(t, s, func(tx *Tx) error { return tx.Verify() })
	}
	view(t, s, func(tx *Tx) error {
		tx.small = tx.small.Copy()
		tx.small.Set(change{bucket: bucketRunOpen, key: []byte("nobody's"), value: []byte{}})
		if err := tx.Verify(); err == nil || !strings.Contains(err.Error(), "nobody's") {
			t.Errorf("an entry that no layer has: %v", err)
		}
		return nil
	})
}
