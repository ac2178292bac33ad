package inventory

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

func anyToken(t *rapid.T) Token {
	moment := func(name string) time.Time {
		return rapid.SampledFrom([]time.Time{{}, time.Unix(1, 1).UTC(), anyTime(t)}).Draw(t, name)
	}
	out := Token{
		ID: "t1", Digest: anyText(t), Name: anyText(t), Org: anyText(t), MadeBy: anyText(t), MadeWith: anyText(t),
		ReadOnly: rapid.Bool().Draw(t, "read only"), CreatedAt: moment("created"), ExpiresAt: moment("expires"), RevokedAt: moment("revoked"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "apps") {
		out.Apps = append(out.Apps, bourse.AppRef{Name: bourse.AppName(anyText(t)), ID: anyText(t)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "machines") {
		out.Machines = append(out.Machines, bourse.MachineID(anyText(t)))
	}
	return out
}

func TestTokenReadsBackEqual(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	rapid.Check(t, func(rt *rapid.T) {
		want := anyToken(rt)
		row := TokenRow(&want)
		row.Clock = 1
		if _, err := all.Check("b1", row); err != nil {
			rt.Fatalf("the row does not fit: %v", err)
		}
		Plant(t, c, "b1", row)
		got, err := TokenByID("t1")(c)
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("read back (-want +got):\n%s", diff)
		}
	})
}

// TestATokenWithUnreadableRestrictions checks that a token whose restrictions cannot be decoded
// is not treated as an unrestricted one.
func TestATokenWithUnreadableRestrictions(t *testing.T) {
	c := SchemaConn(t)
	for name, columns := range map[string]map[string]wire.Value{
		"apps of another shape": {"apps": `{"all":true}`}, "machines of another shape": {"machines": `[1]`},
	} {
		row := TokenRow(&Token{ID: "t1", Org: "me"})
		maps.Copy(row.Columns, columns)
		Plant(t, c, "b1", row)
		if got, err := TokenByID("t1")(c); err != nil || !got.Undecodable {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestTokensExpire checks that a token's row is removed only if the token is invalid even on
// members that have not received its revocation, and that FindExpired and Expired agree on this.
func TestTokensExpire(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	before := wire.ClockAt(now.Add(-7 * 24 * time.Hour))
	day := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	for name, tt := range map[string]struct {
		token Token
		gone  bool
	}{
		"never expires":             {Token{}, false},
		"valid for another day":     {Token{ExpiresAt: day(1)}, false},
		"expired yesterday":         {Token{ExpiresAt: day(-1)}, false},
		"expired long ago":          {Token{ExpiresAt: day(-8)}, true},
		"revoked long ago":          {Token{RevokedAt: day(-30)}, false},
		"revoked a year ago":        {Token{RevokedAt: day(-400)}, true},
		"revoked, not expired":      {Token{RevokedAt: day(-400), ExpiresAt: day(1)}, false},
		"revoked, expired long ago": {Token{RevokedAt: day(-30), ExpiresAt: day(-8)}, true},
	} {
		c := SchemaConn(t)
		all := schemaTables(t, c)
		tt.token.ID = "t1"
		row := TokenRow(&tt.token)
		row.Clock = 1
		Plant(t, c, "b1", row)
		list, err := all.FindExpired(c, before, 10)
		if err != nil || (len(list) == 1) != tt.gone {
			t.Errorf("%s: %d expired, %v", name, len(list), err)
		}
		v, _, err := all.Find(c, wire.TableTokens, true, "", "t1")
		if err != nil || schema.Expired(&v, before) != tt.gone {
			t.Errorf("%s: expired alone is %v, %v", name, !tt.gone, err)
		}
	}
}
