package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/view/schema"
)

// TestPoliciesReadBackEqual checks that each use and region has a row of its own.
func TestPoliciesReadBackEqual(t *testing.T) {
	c := SchemaConn(t)
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	want := []Policy{
		{Text: []byte(`{"name":"all"}`), SetBy: "ann", SetAt: at},
		{Region: "gru", Text: []byte(`{"name":"<&>"}`), SetBy: "bob", SetAt: at},
		{Region: "gru", Shadow: true, Text: []byte(`{"name":"shadow"}`), SetAt: at},
	}
	for i := range want {
		Plant(t, c, "b1", PolicyRow(&want[i]))
	}
	got, err := Policies()(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	if err := schema.Run(c, "DELETE FROM policy_rows WHERE key = ?", PolicyGone(&want[1]).Key); err != nil {
		t.Fatal(err)
	}
	if got, err := Policies()(c); err != nil || len(got) != 2 || got[0].Region != "" || !got[1].Shadow {
		t.Errorf("the policy that ranks gru was removed, but the rest is %+v, %v", got, err)
	}
}
