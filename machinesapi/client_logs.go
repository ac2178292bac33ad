package machinesapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
)

// LogQuery selects lines of a machine's output.
type LogQuery struct {
	After  string    // only lines behind the one of this position; the others then say nothing but Follow
	Since  time.Time // zero: from the beginning
	Tail   int       // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow bool      // go on until ctx ends or the machine is destroyed
}

// Logs calls line for each line of a machine's output, oldest first, from the
// calling goroutine; an error of line ends the stream and is returned. Codes:
// invalid, not_found, and unavailable when the stream breaks off.
func (c *Client) Logs(ctx context.Context, app bourse.AppName, id bourse.MachineID, want LogQuery, line func(LogLine) error) error {
	query := url.Values{}
	if want.After != "" {
		query.Set("after", want.After)
	}
	if !want.Since.IsZero() {
		query.Set("since", want.Since.UTC().Format(time.RFC3339Nano))
	}
	if want.Tail != 0 {
		query.Set("tail", strconv.Itoa(want.Tail))
	}
	if want.Follow {
		query.Set("follow", "true")
	}
	k := call{method: http.MethodGet, path: machinePath(app, id, "logs"), query: query}
	resp, err := c.send(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		return replyError(resp)
	}
	lines := json.NewDecoder(resp.Body)
	for {
		var l LogLine
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.lost(ctx, k, fmt.Errorf("read the log: %w", err))
		case l.Error != nil:
			return &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error), Err: &ReplyError{
				Status: resp.StatusCode, RequestID: resp.Header.Get(HeaderRequestID),
			}}
		}
		if err := line(l); err != nil {
			return err
		}
	}
}
