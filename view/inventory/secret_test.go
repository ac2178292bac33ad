package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
)

// TestSecretsReadBack checks that exactly the secrets of the requested app are returned, even if
// the app's ID is a prefix of another app's ID.
func TestSecretsReadBack(t *testing.T) {
	c, at := SchemaConn(t), peopleStart
	want := []seal.Secret{
		{Name: "A", Digest: "d1", Sealed: []byte{1, 2, 0}, Version: 7, CreatedAt: at, UpdatedAt: at},
		{Name: "B", Digest: "d2", Sealed: []byte{3}, Version: 7, CreatedAt: at, UpdatedAt: at},
	}
	first := seal.Marks{}.Next(3, at)
	second := seal.Marks{3: first}.Next(4, at)
	Plant(t, c, "b1", SecretRows(&seal.Change{App: bourse.AppRef{Name: "shop", ID: "01J"}, Put: want, Mark: first})...)
	Plant(t, c, "b2", SecretRows(&seal.Change{App: bourse.AppRef{Name: "shop", ID: "01J"}, Mark: second})...)
	Plant(t, c, "b1", SecretRows(&seal.Change{App: bourse.AppRef{Name: "other", ID: "01J0"}, Put: want[:1], Mark: first})...)
	got, err := Secrets("01J")(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	marks, err := SecretMarks("01J")(c)
	if err != nil || marks.Version() != second.Version || !marks.Has(second.Version) || len(marks) != 2 {
		t.Errorf("marks %+v, %v", marks, err)
	}
	if marks, err := SecretMarks("01")(c); err != nil || len(marks) != 0 {
		t.Errorf("marks of an app without any: %+v, %v", marks, err)
	}
	if rows := ClearedSecrets("01J", got, marks); len(rows) != 4 {
		t.Errorf("%d rows are deleted with the app, want 4", len(rows))
	}
}
