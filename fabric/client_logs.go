package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

var routeLogs = routeOf(PathLogs)

// Logs calls line with the machine's log lines that q selects, oldest first, until
// there are no more, ctx ends, or line returns an error, which Logs returns.
// A stream that breaks off before its end is an error.
func (c *Client) Logs(ctx context.Context, to bourse.Member, id bourse.MachineID, q LogsQuery, line func(LogLine) error) error {
	resp, err := c.open(ctx, to, ask{route: routeLogs, id: string(id), query: q.values()})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readLines(ctx, to, resp.Body, line)
}
