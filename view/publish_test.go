package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

func TestPublishWritesOnlyChanges(t *testing.T) {
	v := startMember(t, Config{Path: tempFile(t)})
	first := v.publish(volume("v1", "shop"), secret("shop/a", "d1", 0))
	if first.Seq != 1 || first.Stream != v.Self().Stream {
		t.Fatalf("first transaction at %v", first)
	}
	if p := v.publish(volume("v1", "shop"), secret("shop/a", "d1", 0)); p != (wire.Position{}) {
		t.Errorf("the same rows again: position %v, want none", p)
	}
	changed := volume("v1", "shop")
	changed.Columns["state"] = "attached"
	delete(changed.Columns, "size_gb") // returns the column to its default
	if p := v.publish(changed); p.Seq != 2 {
		t.Errorf("a change: position %v", p)
	}
	tx, err := wire.Decode(v.told[1])
	if err != nil {
		t.Fatal(err)
	}
	want := []wire.Row{{Table: wire.TableVolumes, Key: "v1", Columns: map[string]wire.Value{"state": "attached", "size_gb": nil}}}
	if d := cmp.Diff(want, tx.Rows); d != "" {
		t.Errorf("the published change (-want +got):\n%s", d)
	}
	v.sound()
}

func TestPublishRejectsInvalidRows(t *testing.T) {
	v := startMember(t, Config{})
	for name, row := range map[string]wire.Row{
		"unknown table": {Table: "nonsense", Key: "a"},
		"no key":        {Table: wire.TableVolumes},
		"wrong type":    {Table: wire.TableVolumes, Key: "a", Columns: map[string]wire.Value{"size_gb": "big"}},
		"bookkeeping":   {Table: wire.TableVolumes, Key: "a", Columns: map[string]wire.Value{"site": "w2"}},
		"not JSON":      {Table: wire.TableMachines, Key: "a", Columns: map[string]wire.Value{"config": "{"}},
		"other worker":  {Table: wire.TableWorkers, Key: "w2"},
	} {
		if _, err := v.Publish(t.Context(), volume("good", "x"), row); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: got error %v, want %s", name, err, bourse.CodeInvalid)
		}
	}
	if got := v.dump(); len(got) != 0 {
		t.Errorf("rejected rows were stored: %v", got)
	}
}

func TestRepublishReplacesRows(t *testing.T) {
	v, other := startMember(t, Config{}), startMember(t, Config{Site: "w2"})
	if p, err := v.Republish(t.Context(), []string{wire.TableVolumes}, nil); err != nil || p.Seq != 1 {
		t.Fatalf("the first Republish without rows: %v, %v, want a transaction", p, err)
	}
	v.publish(volume("v1", "a"), volume("v2", "a"))
	if _, err := v.Republish(t.Context(), []string{wire.TableVolumes, wire.TableImages}, []wire.Row{volume("v2", "b"), volume("v3", "a")}); err != nil {
		t.Fatal(err)
	}
	if p, err := v.Republish(t.Context(), []string{wire.TableVolumes}, []wire.Row{volume("v2", "b"), volume("v3", "a")}); err != nil || p != (wire.Position{}) {
		t.Errorf("the same again: %v, %v, want nothing", p, err)
	}
	other.take(v.told...)
	if d := cmp.Diff(v.dump(), other.dump()); d != "" || len(other.dump()) != 2 {
		t.Errorf("owner and other differ (-owner +other):\n%s%v", d, other.dump())
	}
}

func TestPublishSplitsTransactions(t *testing.T) {
	v, other := startMember(t, Config{}), startMember(t, Config{Site: "w2"})
	var rows []wire.Row
	for i := range 2*wire.MaxRows + 1 {
		rows = append(rows, volume(string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676)), "x"))
	}
	if p := v.publish(rows...); p.Seq != 3 {
		t.Errorf("%d rows made %d transactions, want 3", len(rows), p.Seq)
	}
	other.take(v.told...)
	if a, b := v.Digest(), other.Digest(); cmp.Diff(a, b) != "" {
		t.Errorf("digests differ: %v and %v", a, b)
	}
	v.sound()
}
