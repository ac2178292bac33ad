package run

import (
	"context"
	"encoding/json"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// rowsStatement is what [over.Rows] asks. Its columns are in the order in which
// rowOf reads them. What else changes in a row, such as its checks, is news, too.
const rowsStatement = `SELECT id, worker, state, instance_id, cordoned, starts, lease_owner,
  (SELECT json_group_array(name || ' ' || status) FROM checks WHERE machine = id) AS checks FROM machines WHERE app = ?`

func (o over) Rows(ctx context.Context, news func(Row)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := o.client.Subscribe(ctx, machinesapi.ViewQuery{Statement: rowsStatement, Params: []any{string(o.app)}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for line, err := range s.Lines() {
		if err != nil {
			return err
		}
		switch {
		case line.Row != nil:
			news(rowOf(line.Row.Cells))
		case line.End != nil:
			news(Row{})
		case line.Change != nil && len(line.Change.Row.Cells) > 0:
			row := rowOf(line.Change.Row.Cells)
			row.Gone = line.Change.Kind == machinesapi.RowDeleted
			news(row)
		}
	}
	return bourse.Errorf(bourse.CodeUnavailable, "the news of the view have ended")
}

// rowOf reads the cells of a row, as many as there are.
func rowOf(cells []any) Row {
	text := func(i int) string {
		if i < len(cells) {
			if s, ok := cells[i].(string); ok {
				return s
			}
		}
		return ""
	}
	number := func(i int) int {
		if i < len(cells) {
			if n, ok := cells[i].(json.Number); ok {
				v, _ := n.Int64() // 0 for what is none
				return int(v)
			}
		}
		return 0
	}
	return Row{
		Machine: bourse.MachineID(text(0)), Worker: bourse.WorkerID(text(1)), State: bourse.State(text(2)),
		Instance: bourse.InstanceID(text(3)), Cordoned: number(4) != 0, Starts: number(5),
	}
}
