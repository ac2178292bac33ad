package fabric

import (
	"bufio"
	"context"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

var routeLogs = routeOf(PathLogs)

// maxLine bounds one line of a stream of JSON lines. Workers cut a machine's
// lines far below it.
const maxLine = 1 << 20

// Logs gives line the machine's log lines that q selects, oldest first, until
// there are no more, ctx ends, or line gives an error, which Logs gives back.
// A stream that breaks off before its end is an error.
func (c *Client) Logs(ctx context.Context, to bourse.Member, id bourse.MachineID, q LogsQuery, line func(LogLine) error) error {
	resp, err := c.open(ctx, to, ask{route: routeLogs, id: string(id), query: q.values()})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l LogLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			if broken := readOn(lines); broken != nil {
				return Lost(ctx, to, broken) // it was the half of a line
			}
			return bourse.Errorf(bourse.CodeInternal, "worker %s sent a log line that cannot be read: %w", to.ID, err)
		}
		if err := line(l); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return Lost(ctx, to, err)
	}
	return nil
}

// readOn tells whether the stream ends in an error right here: a scanner gives
// what came before the error as its last line.
func readOn(lines *bufio.Scanner) error {
	if lines.Scan() {
		return nil
	}
	return lines.Err()
}
