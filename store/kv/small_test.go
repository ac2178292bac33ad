package kv

import "testing"

// What the small buckets hold is in memory as it is below: after an open, and
// after a transaction that was undone. verify sees where it is not.
func TestSmallBuckets(t *testing.T) {
	dir := t.TempDir()
	d := openIn(t, dir)
	hold := func(tx Tx, name string) error { return tx.Put(bucketHolds, []byte(name), []byte(name)) }
	update(t, d, func(tx Tx) error {
		for _, err := range []error{putMachine(0)(tx), hold(tx, "kept"), hold(tx, "ended")} {
			if err != nil {
				return err
			}
		}
		return tx.Delete(bucketHolds, []byte("ended"))
	})
	if err := d.Update(t.Context(), func(tx Tx) error {
		for _, err := range []error{putMachine(1)(tx), hold(tx, "undone"), tx.Put(bucketHolds, []byte("kept"), nil), tx.Delete(bucketHolds, []byte("kept"))} {
			if err != nil {
				return err
			}
		}
		return errKill
	}); err == nil {
		t.Fatal("an error of the function is none of Update")
	}
	for _, how := range []string{"written", "opened"} {
		if how == "opened" {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = openIn(t, dir)
		}
		view(t, d, func(tx Tx) error {
			holds := ""
			for k, v := range tx.Range(bucketHolds, nil) {
				holds += string(k) + "=" + string(v) + ";"
			}
			for k := range tx.Back(bucketHolds, nil) {
				holds += string(k)
			}
			if holds != "kept=kept;kept" {
				t.Errorf("%s: holds %s", how, holds)
			}
			return verify(tx)
		})
	}
	view(t, d, func(tx Tx) error {
		small := tx.(*logTx)
		small.snapshot.small = small.snapshot.small.Copy()
		small.snapshot.small.Set(change{bucketCommitted, []byte("memory"), uint64Bytes(7)})
		if verify(tx) == nil {
			t.Error("a sum that no layer has is not seen")
		}
		return nil
	})
}
