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

// Bounds of one page of logs.
const (
	logMachines = 100     // the newest of an app; an instance or a region finds others
	logAtOnce   = 16      // that are read side by side
	logLines    = 100     // of the first page, and of a machine that is new
	logBytes    = 1 << 20 // of all machines together; what is more is on the next page
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

// positions are where the next page of an app's logs begins in those of each
// machine; "" is their beginning.
type positions map[bourse.MachineID]string

// token writes positions for clients, who bring them back.
func (p positions) token() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(p)) {
		b.WriteString(string(id) + "=" + p[id] + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

// readToken undoes token. Codes: invalid.
func readToken(text string) (positions, error) {
	out := positions{}
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		id, at, ok := strings.Cut(part, "=")
		if !ok || len(out) == logMachines || !isPosition(at) {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid next_token %s: use that of the page before", bourse.Quoted(text))
		}
		out[bourse.MachineID(id)] = at
	}
	return out, nil
}

// getLogs serves GET /api/v1/apps/{app}/logs: the latest lines of an app's
// machines, then with the token of each page what is new. A page with nothing new
// has the same token: clients wait before they ask again only when a page is
// empty.
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
	var mu sync.Mutex // around these
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(logAtOnce)
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

// logged finds the machines whose logs are meant, the newest first. Codes:
// not_found (the app, the instance).
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

// isPosition reports whether a worker's position may be part of a token.
func isPosition(s string) bool { return len(s) < 64 && strings.Trim(s, ".0123456789") == "" }

var errPageFull = errors.New("the page is full")

// read returns a machine's lines behind a position, at most so many bytes but one
// line at least, and the position behind them. Of a machine that is not known yet
// it returns the latest. One whose worker does not answer has no lines for now.
func (c *caller) read(ctx context.Context, app bourse.AppName, m *machinesapi.Machine, at string, known bool, most int) ([]logEntry, string, error) {
	want := machinesapi.LogQuery{After: at}
	if !known {
		want.Tail = logLines
	}
	var out []logEntry
	err := c.Logs(ctx, app, m.ID, want, func(l machinesapi.LogLine) error {
		if isPosition(l.Position) {
			at = l.Position
		}
		most -= len(l.Text)
		out = append(out, logEntry{ID: string(m.ID) + "." + l.Position, Attributes: logAttributes{
			At: l.At, Message: l.Text, Level: "info", Instance: m.ID, Region: m.Region,
			Meta: map[string]any{"instance": m.ID, "region": m.Region, "event": map[string]string{"provider": "app"}},
		}})
		if most <= 0 && known {
			return errPageFull
		}
		return nil
	})
	code := bourse.CodeOf(err)
	if errors.Is(err, errPageFull) || code == bourse.CodeNotFound || code == bourse.CodeUnavailable || code == bourse.CodeTimeout {
		err = nil // the lines that came are good
	}
	return out, at, err
}
