package flycompat

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Limits for one page of logs.
const (
	// Maximum number of machines whose logs are read. If there are more, only the logs of the newest machines are read.
	logMachines    = 100
	logConcurrency = 16      // number of logs that are read concurrently
	logLines       = 100     // lines per machine, on the first page and for machines that are not in the token yet
	logBytes       = 1 << 20 // total size of the lines on a page, in bytes; the remaining lines follow on the next page
)

// logPage is a page of an app's logs.
type logPage struct {
	Data []logEntry `json:"data"`
	Meta logMeta    `json:"meta"`
}

type logMeta struct {
	NextToken string `json:"next_token"`
}

type logEntry struct {
	ID         string        `json:"id"`
	Attributes logAttributes `json:"attributes"`
}

type logAttributes struct {
	At       time.Time        `json:"timestamp"`
	Message  string           `json:"message"`
	Level    string           `json:"level"`
	Instance bourse.MachineID `json:"instance"`
	Region   bourse.Region    `json:"region"`
	Meta     map[string]any   `json:"meta"`
}

// positions maps each machine to the position in its log where the next page begins. "" is the
// start of the log.
type positions map[bourse.MachineID]string

// token encodes positions as the token of the next page.
func (p positions) token() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(p)) {
		b.WriteString(string(id) + "=" + p[id] + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

// readToken decodes a page token. Errors: invalid.
func readToken(text string) (positions, error) {
	out := positions{}
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		id, at, ok := strings.Cut(part, "=")
		if !ok || len(out) == logMachines || !isPosition(at) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid next_token %s: use the one from the previous page", bourse.Quoted(text))
		}
		out[bourse.MachineID(id)] = at
	}
	return out, nil
}

// getLogs serves GET /api/v1/apps/{app}/logs. Without a token in the request, it returns the latest
// lines of the app's machines. With the token from an earlier page, it returns the lines written
// after that page. If there are no new lines, the page is empty and contains the same token again,
// because clients pause only after an empty page.
func getLogs(c *caller, w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	before, err := readToken(query.Get("next_token"))
	if err != nil {
		return err
	}
	app := bourse.AppName(r.PathValue("app"))
	machines, err := c.logged(r.Context(), app, bourse.Region(query.Get("region")), bourse.MachineID(query.Get("instance")))
	if err != nil {
		return err
	}
	out := logPage{Data: []logEntry{}}
	next := positions{}
	var mu sync.Mutex // guards out and next
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(logConcurrency)
	for i := range machines {
		m := &machines[i]
		at, known := before[m.ID]
		group.Go(func() error {
			lines, end, err := c.read(ctx, app, m, at, known, logBytes/len(machines))
			mu.Lock()
			defer mu.Unlock()
			out.Data = append(out.Data, lines...)
			next[m.ID] = end
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.SortStableFunc(out.Data, func(x, y logEntry) int { return x.Attributes.At.Compare(y.Attributes.At) })
	if len(before) == 0 {
		out.Data = out.Data[max(0, len(out.Data)-logLines):]
	}
	out.Meta.NextToken = next.token()
	return writeJSON(w, http.StatusOK, out)
}

// logged returns the machines whose logs are requested, newest first. Errors: not_found if the app
// or the instance does not exist.
func (c *caller) logged(ctx context.Context, app bourse.AppName, region bourse.Region, instance bourse.MachineID) ([]machinesapi.Machine, error) {
	if err := app.Validate(); err != nil {
		return nil, err
	}
	list, _, err := c.Machines(ctx, app, machinesapi.ListMachines{Summary: true, Region: region})
	if err != nil {
		return nil, err
	}
	if instance != "" {
		list = slices.DeleteFunc(list, func(m machinesapi.Machine) bool { return m.ID != instance })
		if len(list) == 0 {
			return nil, bourse.Errorf(bourse.CodeNotFound, "machine not found")
		}
	}
	slices.SortFunc(list, func(x, y machinesapi.Machine) int {
		return cmp.Or(cmp.Compare(y.CreatedAt, x.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return list[:min(len(list), logMachines)], nil
}

// isPosition reports whether s looks like a log position. s comes from a worker, which is not trusted.
func isPosition(s string) bool { return len(s) < 64 && strings.Trim(s, ".0123456789") == "" }

var errPageFull = errors.New("the page is full")

// read returns the log lines that a machine has written after the given position, and the position of the last
// returned line. It stops once the lines add up to limit bytes or more. If known is not set, the client's token
// contains no position for the machine, and read returns the latest lines regardless of their size. If the machine's
// worker does not respond, the result may be incomplete, but err is nil.
func (c *caller) read(ctx context.Context, app bourse.AppName, m *machinesapi.Machine, position string, known bool, limit int) ([]logEntry, string, error) {
	want := machinesapi.LogQuery{After: position}
	if !known {
		want.Tail = logLines
	}
	var out []logEntry
	err := c.Logs(ctx, app, m.ID, want, func(l machinesapi.LogLine) error {
		if isPosition(l.Position) {
			position = l.Position
		}
		limit -= len(l.Text)
		out = append(out, logEntry{ID: string(m.ID) + "." + l.Position, Attributes: logAttributes{
			At: l.At, Message: l.Text, Level: "info", Instance: m.ID, Region: m.Region,
			Meta: map[string]any{"instance": m.ID, "region": m.Region, "event": map[string]string{"provider": "app"}},
		}})
		if limit <= 0 && known {
			return errPageFull
		}
		return nil
	})
	code := bourse.CodeOf(err)
	if errors.Is(err, errPageFull) || code == bourse.CodeNotFound || code == bourse.CodeUnavailable || code == bourse.CodeTimeout {
		err = nil // the lines received so far are valid
	}
	return out, position, err
}
