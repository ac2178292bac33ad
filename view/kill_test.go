package view

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// envChild makes the test binary run as a child process. The variable's value is the task, a space and the view's path.
const envChild = "BOURSE_VIEW_CHILD"

func TestMain(m *testing.M) {
	if what, path, ok := strings.Cut(os.Getenv(envChild), " "); ok {
		if err := child(what, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if raceEnabled {
		if err := flag.Set("rapid.checks", "10"); err != nil { // flags on the command line override this
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func child(what, path string) error {
	v, err := Open(withTestDefaults(Config{Path: path}))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	switch what {
	case "apply":
		return childApplies(ctx, v)
	case "limit":
		err = childFills(ctx, v)
	}
	cancel()
	return errors.Join(err, <-ended, v.Close())
}

// longLog returns a transaction of another site's endless stream, whose rows change all the
// time.
func longLog(seq uint64) *wire.Transaction {
	clock := wire.ClockAt(wire.TimeOf(1_700_000_000_000_000_000)) + wire.Clock(seq)
	tx := &wire.Transaction{Position: wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1}, Seq: seq}, At: int64(seq)}
	for i := range seq%4 + 1 {
		row := volume(fmt.Sprint("v", (seq+i)%50), fmt.Sprint(seq))
		if seq%7 == 0 {
			row = wire.Row{Table: wire.TableVolumes, Key: row.Key, Deleted: true}
		}
		tx.Rows = append(tx.Rows, row)
	}
	tx.Rows = append(tx.Rows, secret(fmt.Sprint("s", seq%20), fmt.Sprint(seq), clock))
	return tx
}

// childApplies applies the stream endlessly, and prints the last position in the file to stdout.
func childApplies(ctx context.Context, v *View) error {
	of := wire.Stream{Site: "w2", Epoch: 1}
	for seq := v.Head(of) + 1; ; seq++ {
		b, err := wire.Encode(longLog(seq), testSeal())
		if err != nil {
			return err
		}
		if _, err := v.Apply(b); err != nil {
			return err
		}
		if seq%16 == 0 {
			if err := v.Flush(ctx); err != nil {
				return err
			}
		}
		if seq%5 == 0 {
			if _, err := v.Publish(ctx, volume("mine", fmt.Sprint(seq))); err != nil {
				return err
			}
		}
		if _, err := os.Stdout.Write(binary.BigEndian.AppendUint64(nil, v.Head(of))); err != nil {
			return err
		}
	}
}

// TestKill repeatedly kills, at random moments, a process that applies transactions. The file must be intact and
// contain everything up to the last position that the process has printed. The next process continues from there, and
// the result must equal that of a process that was never killed.
func TestKill(t *testing.T) {
	path := tempFile(t)
	said := uint64(0)
	for round := range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envChild+"=apply "+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		for range 20 + rand.IntN(400) { // until a random time
			if _, err := io.ReadFull(out, b[:]); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			said = max(said, binary.BigEndian.Uint64(b[:]))
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // fails, because the process was killed
		m := startMember(t, Config{Path: path})
		if m.Generation() != 1 || fileExists(path+schema.DamagedSuffix) {
			t.Fatal("the file was replaced")
		}
		if got := m.Head(wire.Stream{Site: "w2", Epoch: 1}); got < said {
			t.Fatalf("round %d: the file has the stream up to %d, but the process reported %d", round, got, said)
		}
		m.sound()
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	compareWithUnharmed(t, path)
}

func compareWithUnharmed(t *testing.T, path string) {
	t.Helper()
	killed, unharmed := startMember(t, Config{Path: path}), startMember(t, Config{})
	for seq := range killed.Head(wire.Stream{Site: "w2", Epoch: 1}) {
		b, err := wire.Encode(longLog(seq+1), testSeal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unharmed.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	unharmed.flush()
	if err := killed.Renew(t.Context(), killed.Self().Stream); err != nil { // removes its own rows from the comparison
		t.Fatal(err)
	}
	if d := cmp.Diff(unharmed.dump(), killed.dump()); d != "" {
		t.Errorf("the views of the process that was never killed and the killed one differ:\n%s", d)
	}
}
