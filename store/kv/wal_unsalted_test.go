package kv

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// A release before version 7 was killed with records in its log: they are in the
// store of this release, and a torn one behind them is not.
func TestALogOfAnOlderRelease(t *testing.T) {
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, Turn: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var bodies [][]byte
	for n := range 3 {
		update(t, s, func(tx Tx) error {
			err := putMachine(n)(tx)
			bodies = append(bodies, append([]byte(nil), tx.(*logTx).writes.record[walHeader:]...))
			return err
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, FileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, step := range schema().Migrations[:6] {
		if err := db.Update(func(tx *bbolt.Tx) error {
			if err := step(tx); err != nil {
				return err
			}
			return tx.Bucket([]byte(Meta)).Put(keyVersion, binary.BigEndian.AppendUint32(nil, uint32(n+1)))
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var log []byte
	for n, body := range bodies {
		head := make([]byte, unsaltedHeader)
		binary.BigEndian.PutUint32(head, uint32(len(body)))
		binary.BigEndian.PutUint64(head[8:], uint64(n+1))
		sum := crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, body)
		binary.BigEndian.PutUint32(head[4:], sum)
		log = append(append(log, head...), body...)
	}
	log[len(log)-1] ^= 1
	if err := os.WriteFile(filepath.Join(dir, walNames[0]), log, 0o600); err != nil {
		t.Fatal(err)
	}
	reopened(t, dir, 2)
	reopened(t, dir, 2)
}
