package fabric_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/compact"
)

func someClaim(t *rapid.T) *bourse.Claim {
	text := rapid.StringMatching(`[a-z0-9-]{1,70}`)
	o := bourse.Order{
		ID: bourse.OrderID(text.Draw(t, "id")), App: bourse.App{Name: bourse.AppName(text.Draw(t, "app"))},
		Task: &bourse.TaskOrder{
			Name: text.Draw(t, "task"), Payload: rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "payload"), Type: rapid.String().Draw(t, "type"),
			Timeout: bourse.Duration(rapid.Int64().Draw(t, "timeout")),
		},
		Options: bourse.Options{Within: bourse.Duration(rapid.Int64().Draw(t, "within")), Named: rapid.Bool().Draw(t, "named")},
	}
	for range rapid.IntRange(0, 3).Draw(t, "choices") {
		var c bourse.Choice
		for range rapid.IntRange(1, 30).Draw(t, "regions") {
			c = append(c, bourse.Region(text.Draw(t, "region")))
		}
		o.Regions = append(o.Regions, c)
	}
	for range rapid.IntRange(0, 3).Draw(t, "requirements") {
		r := bourse.Requirement{Label: text.Draw(t, "label")}
		if rapid.Bool().Draw(t, "countable") {
			r = bourse.Requirement{Count: rapid.Int64Range(1, bourse.MaxAmount).Draw(t, "count")}
		}
		if o.Config.Requirements == nil {
			o.Config.Requirements = bourse.Requirements{}
		}
		o.Config.Requirements[text.Draw(t, "name")] = r
	}
	return &bourse.Claim{Order: o}
}

// warmClaim claims a task from a worker, and gives what the worker read.
func warmClaim(t *rapid.T, claim *bourse.Claim, reply fabric.TaskReply) (read *bourse.Order, fill *bourse.Fill, refusal *bourse.Refusal, err error) {
	var mux http.ServeMux
	mux.HandleFunc(fabric.PathTask, func(w http.ResponseWriter, r *http.Request) {
		var c fabric.TaskClaim
		if err := fabric.ReadBody(w, r, &c); err != nil {
			t.Errorf("read a claim: %v", err)
		}
		read = c.Order
		fabric.WriteBody(w, reply)
	})
	fill, refusal, err = fabric.NewClient(memory{&mux}).Claim(t.Context(), w1, claim)
	return read, fill, refusal, err
}

// A claim of a task reads as it was written, and so does its reply.
func TestClaimOfATask(t *testing.T) {
	result := &bourse.TaskResult{Order: "o", Worker: "w1", End: bourse.TaskAnswered, Answer: []byte("42"), StartedAt: time.Unix(5, 6).UTC()}
	refusal := &bourse.Refusal{Worker: "w1", Region: "gru", Reason: bourse.RefusedResource, Resource: "slots", Wanted: 3, Free: 1, Detail: "insufficient"}
	replies := map[string]fabric.TaskReply{
		"a fill":    {Fill: &bourse.Fill{Task: result, Claimed: 7, Started: -8, Again: true}},
		"a refusal": {Refusal: refusal},
		"neither":   {},
		"both":      {Fill: &bourse.Fill{Task: result}, Refusal: refusal},
	}
	rapid.Check(t, func(t *rapid.T) {
		claim := someClaim(t)
		for name, want := range replies {
			read, fill, refusal, err := warmClaim(t, claim, want)
			if diff := cmp.Diff(&claim.Order, read); diff != "" {
				t.Fatalf("the worker read (-want +got):\n%s", diff)
			}
			if (want.Fill == nil) == (want.Refusal == nil) {
				if bourse.CodeOf(err) != bourse.CodeInternal {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if diff := cmp.Diff(want, fabric.TaskReply{Fill: fill, Refusal: refusal}, byValue); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
			}
		}
	})
}

// Servers of different releases talk to each other: the numbers of fields stay.
func TestNumbersStay(t *testing.T) {
	claim, err := fabric.TaskClaim{Order: &bourse.Order{
		ID: "o", App: bourse.App{Name: "a"}, Regions: []bourse.Choice{{"gru"}, {"mad"}},
		Config:  bourse.Config{Requirements: bourse.Requirements{"s": {Count: 1}}},
		Task:    &bourse.TaskOrder{Name: "n", Payload: []byte("p"), Type: "t", Timeout: 1},
		Options: bourse.Options{Within: 2, Named: true},
	}}.AppendBinary(nil)
	const wantClaim = `"\n\x01o\x12\x01a\x1a\x05\n\x03gru\x1a\x05\n\x03mad\"\x05\n\x01s\x18\x02*\x01n2\x01p:\x01t@\x02H\x04P\x02"`
	if got := fmt.Sprintf("%q", claim); err != nil || got != wantClaim {
		t.Errorf("a claim is\n%s, want\n%s (%v)", got, wantClaim, err)
	}
	fill := &bourse.Fill{Task: &bourse.TaskResult{Order: "o"}, Claimed: 1, Started: 2, Again: true}
	reply, err := fabric.TaskReply{Fill: fill, Refusal: &bourse.Refusal{}}.AppendBinary(nil)
	const wantReply = `"\n\x03\n\x01o\x10\x02\x18\x04 \x02*1{\"worker\":\"\",\"region\":\"\",\"reason\":\"\",\"detail\":\"\"}"`
	if got := fmt.Sprintf("%q", reply); err != nil || got != wantReply {
		t.Errorf("a reply is\n%s, want\n%s (%v)", got, wantReply, err)
	}
}

// What the short form cannot say goes as JSON, and so does everything to a
// worker of an older release, which answers 404.
func TestOtherClaimsOfTasks(t *testing.T) {
	warm := func() *bourse.Claim {
		return &bourse.Claim{Order: bourse.Order{ID: "o1", Task: &bourse.TaskOrder{Name: "inc", Payload: []byte("1")}}}
	}
	reserved, cold, named := warm(), warm(), warm()
	reserved.Order.Reservation, cold.Order.Task.Name, named.Order.Name = "r", "", "n"
	for name, c := range map[string]struct {
		claim *bourse.Claim
		asked []string
	}{
		"to an older worker": {warm(), []string{"/worker/task", "/worker/claim"}},
		"of a reservation":   {reserved, []string{"/worker/claim"}},
		"of a machine's own": {cold, []string{"/worker/claim"}},
		"of a named machine": {named, []string{"/worker/claim"}},
	} {
		var asked []string
		var older http.ServeMux
		older.HandleFunc(fabric.PathClaim, func(w http.ResponseWriter, r *http.Request) {
			var got bourse.Claim
			if err := fabric.ReadBody(w, r, &got); err != nil || !cmp.Equal(got, *c.claim) {
				t.Errorf("%s: the worker read %+v (%v)", name, got, err)
			}
			fabric.WriteBody(w, fabric.ClaimReply{Fill: &bourse.Fill{Task: &bourse.TaskResult{Order: "o1"}}})
		})
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			older.ServeHTTP(w, r)
		})
		fill, _, err := fabric.NewClient(memory{h}).Claim(t.Context(), w1, c.claim)
		if err != nil || fill.Task.Order != "o1" || !cmp.Equal(asked, c.asked) {
			t.Errorf("%s: got %+v, %v; asked %q, want %q", name, fill, err, asked, c.asked)
		}
	}
}

// A worker's own answer of 404 is its answer, and no reason to claim again.
func TestAClaimIsNotRepeated(t *testing.T) {
	asked := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fabric.WriteFailure(w, bourse.Errorf(bourse.CodeNotFound, "no such thing"))
	})
	_, _, err := fabric.NewClient(memory{h}).Claim(t.Context(), w1, &bourse.Claim{Order: bourse.Order{Task: &bourse.TaskOrder{Name: "inc"}}})
	if bourse.CodeOf(err) != bourse.CodeNotFound || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// Numbers that JSON would not let in do not come in here either.
func TestHostileClaimsOfTasks(t *testing.T) {
	requirement := func(count int64, label string) []byte {
		r := compact.Int(compact.Text(compact.Text(nil, 1, "slots"), 2, label), 3, count)
		return compact.Text(compact.Text(nil, 4, r), 5, "inc")
	}
	for name, b := range map[string][]byte{
		"nothing":          {},
		"no task":          compact.Text(nil, 1, "o1"),
		"fewer than none":  requirement(-1, ""),
		"too many":         requirement(bourse.MaxAmount+1, ""),
		"a number and not": requirement(1, "x"),
		"no text":          requirement(0, "\xff"),
		"half a choice":    compact.Text(compact.Text(nil, 3, "\x0a\x05a"), 5, "inc"),
		"JSON":             []byte(`{"order":{}}`),
	} {
		var c fabric.TaskClaim
		if err := c.UnmarshalBinary(b); bourse.CodeOf(err) != bourse.CodeInvalid || c.Order != nil {
			t.Errorf("%s: %v, %+v", name, err, c.Order)
		}
	}
	var c fabric.TaskClaim
	if err := c.UnmarshalBinary(requirement(bourse.MaxAmount, "")); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
}

// FuzzTaskClaim reads what anyone may send to a worker.
func FuzzTaskClaim(f *testing.F) {
	for _, o := range []*bourse.Order{
		{ID: "o", Task: &bourse.TaskOrder{Name: "inc", Payload: []byte("1"), Timeout: 5}, Regions: []bourse.Choice{{"gru", "mad"}}},
		{Task: &bourse.TaskOrder{Name: "i"}, Config: bourse.Config{Requirements: bourse.Requirements{"slots": {Count: 1}, "": {}}}, Regions: []bourse.Choice{{}}},
	} {
		b, err := fabric.TaskClaim{Order: o}.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, again fabric.TaskClaim
		err := c.UnmarshalBinary(b)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got code %q: %v", bourse.CodeOf(err), err)
			}
			return
		}
		_ = c.Order.Validate()
		written, err := c.AppendBinary(nil)
		if err == nil {
			err = again.UnmarshalBinary(written)
		}
		if len(c.Order.Task.Payload) == 0 {
			c.Order.Task.Payload = nil
		}
		if diff := cmp.Diff(c.Order, again.Order); err != nil || diff != "" {
			t.Errorf("read again: %v (-first +second):\n%s", err, diff)
		}
	})
}

// FuzzTaskReply reads what anyone may answer with.
func FuzzTaskReply(f *testing.F) {
	yes, err := fabric.TaskReply{Fill: &bourse.Fill{Task: &bourse.TaskResult{Order: "o"}}}.AppendBinary(nil)
	no, err2 := fabric.TaskReply{Refusal: &bourse.Refusal{Worker: "w1", Wanted: -1}}.AppendBinary(nil)
	if err != nil || err2 != nil {
		f.Fatal(err, err2)
	}
	for _, s := range []string{string(yes), string(no), string(yes) + string(no), "{}", "", "\x2a\x04null", strings.Repeat("\x0a", 10)} {
		f.Add(200, s)
		f.Add(404, s)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		h := memory{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})}
		claim := &bourse.Claim{Order: bourse.Order{Task: &bourse.TaskOrder{Name: "inc"}}}
		fill, refusal, err := fabric.NewClient(h).Claim(t.Context(), w1, claim)
		if (err == nil) != ((fill == nil) != (refusal == nil)) {
			t.Errorf("got %v, %v, %v", fill, refusal, err)
		}
		if err != nil && bourse.CodeOf(err) == "" {
			t.Errorf("an error without a code: %v", err)
		}
	})
}
