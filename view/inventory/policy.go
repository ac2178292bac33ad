package inventory

import (
	"encoding/json"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Policy is a policy that an operator has set, as recorded by a broker.
type Policy struct {
	Region bourse.Region   // "": all regions without a policy of their own
	Shadow bool            // whether the policy is only compared with the current ranking
	Text   json.RawMessage // the policy's document
	SetBy  string          // name of the token that was used to set it
	SetAt  time.Time
}

// Values of the column "use".
const (
	useRank   = "rank"
	useShadow = "shadow"
)

func (p *Policy) use() string {
	if p.Shadow {
		return useShadow
	}
	return useRank
}

func (p *Policy) key() string {
	if p.Region == "" {
		return "*/" + p.use()
	}
	return string(p.Region) + "/" + p.use()
}

// PolicyRow returns the row for a policy.
func PolicyRow(p *Policy) wire.Row {
	return wire.Row{Table: wire.TablePolicies, Key: p.key(), Columns: map[string]wire.Value{
		"region": cleanText(p.Region), "use": p.use(), "policy": jsonText(p.Text, "{}"), "set_by": cleanText(p.SetBy), "set_at": nanos(p.SetAt),
	}}
}

// PolicyGone returns the row that removes the policy with p's region and use.
func PolicyGone(p *Policy) wire.Row { return wire.DeletedRow(wire.TablePolicies, p.key()) }

const policiesSQL = `SELECT region, use, policy, set_by, set_at FROM policy_rows ORDER BY key`

// Policies returns a query for all policies, sorted by region and use.
func Policies() func(*sqlite.Conn) ([]Policy, error) {
	return func(c *sqlite.Conn) ([]Policy, error) {
		var out []Policy
		err := schema.Query(c, policiesSQL, func(s *sqlite.Stmt) error {
			r := cells{Stmt: s}
			out = append(out, Policy{
				Region: bourse.Region(s.ColumnText(0)), Shadow: s.ColumnText(1) == useShadow, Text: json.RawMessage(s.ColumnText(2)),
				SetBy: s.ColumnText(3), SetAt: r.time(4),
			})
			return nil
		})
		return out, err
	}
}
