package broker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	tasksPath    = "/v1/apps/shop/tasks"
	schedulePath = "/schedule"
)

// work runs a task on a worker: tasks named "fails" and "hangs" fail, and the answer of any other
// task is its payload.
func (c *cluster) work(order bourse.Order, m bourse.Member) *bourse.TaskResult {
	r := &bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: m.ID, Region: m.Region, Machine: "aaaaaa00000001", End: bourse.TaskAnswered,
		Status: 200, Type: order.Task.Type, Answer: order.Task.Payload, StartedAt: time.Unix(1, 0).UTC(), Took: 1500 * time.Microsecond,
	}
	if tell := order.Task.Output; tell != nil {
		tell(nil)
		tell(order.Task.Payload)
		tell([]byte{0xff})
	}
	switch order.Task.Name {
	case "fails":
		r.End, r.Status, r.ExitCode, r.Error = bourse.TaskFailed, 500, 1, "the program answered with status 500"
	case "hangs":
		r.End, r.Status, r.ExitCode, r.Error, r.Answer = bourse.TaskTimeout, 0, -1, "the task was stopped after its timeout of 1s", nil
	}
	return r
}

func TestTaskRequestAndReply(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want bourse.TaskOrder
		out  string // expected part of the reply that depends on the payload
	}{
		"JSON": {
			`{"task":"inc","payload": {"N": 41},"timeout":"2s"}`,
			bourse.TaskOrder{Name: "inc", Payload: []byte(`{"N": 41}`), Type: "application/json", Timeout: bourse.Duration(2 * time.Second)},
			`"answer":{"N":41}`,
		},
		"a number": {
			`{"task":"inc","payload":41}`,
			bourse.TaskOrder{Name: "inc", Payload: []byte(`41`), Type: "application/json", Timeout: bourse.Duration(30 * time.Second)},
			`"answer":41`,
		},
		"text": {
			`{"task":"inc","payload":"a \"b\" é"}`,
			bourse.TaskOrder{Name: "inc", Payload: []byte(`a "b" é`), Type: "text/plain; charset=utf-8", Timeout: bourse.Duration(30 * time.Second)},
			`"answer":"a \"b\" é"`,
		},
		"bytes": {
			`{"task":"inc","payload_base64":"AP8="}`,
			bourse.TaskOrder{Name: "inc", Payload: []byte{0, 255}, Type: "application/octet-stream", Timeout: bourse.Duration(30 * time.Second)},
			`"answer_base64":"AP8="`,
		},
		"nothing": {`{"task":"inc","payload":null}`, bourse.TaskOrder{Name: "inc", Timeout: bourse.Duration(30 * time.Second)}, `"exit_code":0`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.app(t, "shop", "personal")
			rec := s.call(t, http.MethodPost, tasksPath, c.body)
			order := s.lastOrder(t)
			if diff := cmp.Diff(&c.want, order.Task); rec.Code != http.StatusOK || diff != "" {
				t.Fatalf("%d %s, ordered (-want +got):\n%s", rec.Code, rec.Body, diff)
			}
			got := decodeBody[machinesapi.TaskReply](t, rec.Body.Bytes())
			if !got.OK || got.End != "answered" || got.ID != order.ID || got.Worker != "w1" || got.TookMS != 1.5 || !strings.Contains(rec.Body.String(), c.out) {
				t.Errorf("reply %s", rec.Body)
			}
			if rec.Header().Get("Bourse-Order-Id") != string(order.ID) || rec.Header().Get("Server-Timing") == "" {
				t.Errorf("headers %v", rec.Header())
			}
			if log := s.log.String(); strings.Contains(log, "41") && strings.Contains(log, "payload") {
				t.Errorf("the log contains the payload: %s", log)
			}
		})
	}
}

// TestFailedTasks checks that the reply to a task has status 200 even if the task failed, but that
// the status of the short form shows the failure.
func TestFailedTasks(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	for task, status := range map[string]int{"fails": http.StatusBadGateway, "hangs": http.StatusGatewayTimeout} {
		rec := s.call(t, http.MethodPost, tasksPath, `{"task":"`+task+`","payload":"oops"}`)
		long := decodeBody[machinesapi.TaskReply](t, rec.Body.Bytes())
		if rec.Code != http.StatusOK || long.OK || long.Error == "" || long.ExitCode == 0 {
			t.Errorf("%s: %d %s", task, rec.Code, rec.Body)
		}
		rec = s.call(t, http.MethodPost, schedulePath, `{"Task":"`+task+`","Payload":"oops"}`)
		short := decodeBody[machinesapi.TaskReply](t, rec.Body.Bytes())
		if rec.Code != status || short.OK || short.End != long.End || short.Error != long.Error {
			t.Errorf("%s in short: %d %s", task, rec.Code, rec.Body)
		}
	}
}

// TestTaskStream checks that, if the request has Accept: application/x-ndjson, the answer is
// streamed as it is written.
func TestTaskStream(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	rec := s.call(t, http.MethodPost, tasksPath, `{"task":"inc","payload":"text"}`, "Accept", "application/x-ndjson")
	lines := strings.Split(strings.TrimSpace(rec.Body.String()), "\n")
	if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/x-ndjson" || len(lines) != 4 {
		t.Fatalf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	id := s.lastOrder(t).ID
	for i, want := range []string{`{"accepted":"` + string(id) + `"}`, `{"output":"text"}`, `{"output_base64":"/w=="}`} {
		if lines[i] != want {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
	if last := decodeBody[machinesapi.TaskLine](t, []byte(lines[3])); last.Result == nil || !last.Result.OK || last.Result.ID != id {
		t.Errorf("the last line is %s", lines[3])
	}
	for _, w := range s.workers { // an error before the first line has an ordinary reply
		w.full = true
	}
	if rec := s.call(t, http.MethodPost, tasksPath, `{"task":"inc"}`, "Accept", "application/x-ndjson"); rec.Code != http.StatusUnprocessableEntity {
		t.Errorf("no capacity: %d %s", rec.Code, rec.Body)
	}
}

// TestColdTaskRequest checks that a task with its own program becomes an order for a machine that runs only this task.
func TestColdTaskRequest(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	rec := s.call(t, http.MethodPost, tasksPath, `{"image":"host","command":["wc","-c"],"env":{"A":"b"},"payload":"12345","requirements":{"slots":2}}`)
	got := decodeBody[machinesapi.TaskReply](t, rec.Body.Bytes())
	if rec.Code != http.StatusOK || !got.OK || string(got.Bytes()) != "12345" {
		t.Fatalf("%d %s", rec.Code, rec.Body)
	}
	o := s.lastOrder(t)
	want := bourse.Config{
		Image: "host", Guest: o.Config.Guest, Env: map[string]string{"A": "b"}, Init: bourse.Init{Exec: []string{"wc", "-c"}}, AutoDestroy: true,
		Restart: &bourse.Restart{Policy: bourse.RestartNo}, Requirements: bourse.Requirements{"slots": {Count: 2}},
	}
	if diff := cmp.Diff(want, o.Config); diff != "" || o.Warm() || o.Config.Guest == nil {
		t.Errorf("ordered (-want +got):\n%s", diff)
	}
}

func TestSchedule(t *testing.T) {
	s := start(t)
	rec := s.call(t, http.MethodPost, schedulePath, `{"Task":"inc","Payload":{"N":41},"Requirements":{"Region":"mad","Slots":2}}`)
	if rec.Code != http.StatusOK || rec.Body.String() != `{"N":41}` || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %v", rec.Code, rec.Body, rec.Header())
	}
	order := s.lastOrder(t)
	if order.App.Name != "default" || order.Config.Requirements["slots"].Count != 2 || order.Regions[0][0] != "mad" {
		t.Errorf("ordered %+v", order)
	}
	for _, w := range s.workers {
		w.full = true
	}
	rec = s.call(t, http.MethodPost, schedulePath, `{"Task":"inc","Payload":1}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusUnprocessableEntity || len(got.Refusals) == 0 || got.OrderID == "" || strings.Contains(got.Error, "machine") {
		t.Errorf("no capacity: %d %s", rec.Code, rec.Body)
	}
}

// TestTaskOrderID checks that an order can be repeated if the caller has chosen its ID.
func TestTaskOrderID(t *testing.T) {
	s := start(t)
	shop, first := s.app(t, "shop", "personal"), bourse.DefaultApp(bourse.App{})
	for path, app := range map[string]bourse.App{tasksPath: shop, schedulePath: first} {
		id := bourse.NewOrderID().In(app.ID)
		s.call(t, http.MethodPost, path, `{"task":"inc"}`, "Bourse-Order-Id", strings.ToLower(string(id)))
		if o := s.lastOrder(t); o.ID != id || !o.HasChosenID {
			t.Errorf("%s: ordered %s, named %t", path, o.ID, o.HasChosenID)
		}
		s.call(t, http.MethodPost, path, `{"task":"inc"}`)
		if o := s.lastOrder(t); o.ID == id || o.HasChosenID {
			t.Errorf("%s: ordered %s, named %t", path, o.ID, o.HasChosenID)
		}
	}
}

func TestHostileTasks(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	slots := func(s string) string { return `{"Task":"inc","Requirements":{"Slots":` + s + `}}` }
	for name, c := range map[string]struct{ path, body string }{
		"empty":                          {tasksPath, ``},
		"not JSON":                       {tasksPath, `hello`},
		"null":                           {tasksPath, `null`},
		"an array":                       {schedulePath, `[]`},
		"no task":                        {tasksPath, `{"payload":1}`},
		"a number for a task":            {tasksPath, `{"task":7}`},
		"dots":                           {tasksPath, `{"task":"a.b"}`},
		"a wildcard":                     {tasksPath, `{"task":"a*"}`},
		"a greater-than":                 {schedulePath, `{"Task":">"}`},
		"a space":                        {schedulePath, `{"Task":"a b"}`},
		"a newline":                      {schedulePath, `{"Task":"a\nb"}`},
		"a path":                         {tasksPath, `{"task":"../x"}`},
		"a long name":                    {tasksPath, `{"task":"` + long[:100] + `"}`},
		"a large payload":                {tasksPath, `{"task":"inc","payload":"` + long + `"}`},
		"task and image":                 {tasksPath, `{"task":"inc","image":"host","command":["true"]}`},
		"task and command":               {tasksPath, `{"task":"inc","command":["true"]}`},
		"host without command":           {tasksPath, `{"image":"host"}`},
		"a command with a NUL":           {tasksPath, `{"image":"host","command":["a\u0000"]}`},
		"guest negative":                 {tasksPath, `{"image":"host","command":["true"],"guest":{"cpus":-1}}`},
		"two payloads":                   {tasksPath, `{"task":"inc","payload":1,"payload_base64":"AA=="}`},
		"invalid base64":                 {tasksPath, `{"task":"inc","payload_base64":"***"}`},
		"timeout negative":               {tasksPath, `{"task":"inc","timeout":"-1s"}`},
		"timeout enormous":               {tasksPath, `{"task":"inc","timeout":"9000h"}`},
		"timeout overflows":              {tasksPath, `{"task":"inc","timeout":1e30}`},
		"timeout nonsense":               {tasksPath, `{"task":"inc","timeout":"soon"}`},
		"slots zero":                     {schedulePath, slots("0")},
		"slots negative":                 {schedulePath, slots("-3")},
		"slots fraction":                 {schedulePath, slots("1.5")},
		"slots enormous":                 {schedulePath, slots("9223372036854775807")},
		"slots beyond the integer range": {schedulePath, slots("1e400")},
		"slots text":                     {schedulePath, slots(`"2"`)},
		"slots empty text":               {schedulePath, slots(`""`)},
		"region unknown":                 {schedulePath, `{"Task":"inc","Requirements":{"Region":"xyz"}}`},
		"region with spaces":             {tasksPath, `{"task":"inc","region":"g r u"}`},
		"requirement zero":               {tasksPath, `{"task":"inc","requirements":{"slots":0}}`},
		"requirement bad name":           {tasksPath, `{"task":"inc","requirements":{"a b":1}}`},
		"invalid requirement":            {tasksPath, `{"task":"inc","requirements":{"slots":[1]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.app(t, "shop", "personal")
			rec := s.call(t, http.MethodPost, c.path, c.body)
			got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
			if rec.Code != http.StatusBadRequest || got.Code != bourse.CodeInvalid || got.Error == "" || len(got.Error) > 1024 {
				t.Errorf("status %d, body %.300s", rec.Code, rec.Body)
			}
			if len(s.orders) != 0 {
				t.Errorf("an order was placed: %+v", s.orders[0])
			}
		})
	}
}

func FuzzTask(f *testing.F) {
	fuzzBody(f, "POST", tasksPath, soundTask,
		`{"task":"inc","payload":{"N":41},"region":"gru,any","requirements":{"slots":1,"zone":"b"},"timeout":"2s"}`,
		`{"task":"inc","payload_base64":"AP8="}`, `{"task":"inc","payload":"\ud800"}`,
		`{"image":"host","command":["cat"],"env":{"A":"b"},"guest":{"cpus":2},"payload":"x"}`)
}

func FuzzSchedule(f *testing.F) {
	for _, seed := range []string{`{"Task":"inc","Payload":{"N":41},"Requirements":{"Region":"gru","Slots":1}}`, `{"Task":"inc","Payload":"x"}`, `null`, `{"task":"hangs"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := start(t)
		rec := s.call(t, http.MethodPost, schedulePath, string(body))
		switch {
		case rec.Code == http.StatusBadGateway, rec.Code == http.StatusGatewayTimeout, rec.Code == http.StatusOK:
			soundTask(t, s)
		case rec.Code >= 500 || !json.Valid(rec.Body.Bytes()):
			t.Fatalf("status %d: %s\n%s", rec.Code, rec.Body, s.log)
		}
	})
}

func soundTask(t *testing.T, s *setup) {
	order := s.lastOrder(t)
	if err := order.Validate(); err != nil || order.Task == nil {
		t.Fatalf("an invalid order was placed: %+v, %v", order, err)
	}
}

// TestScheduleSendsEveryRequirement checks that unknown members of a request to /schedule become
// requirements. They are sent to the workers, which refuse those that they do not know.
func TestScheduleSendsEveryRequirement(t *testing.T) {
	s := start(t)
	s.call(t, http.MethodPost, schedulePath, `{"Task":"inc","Requirements":{"Region":"gru","Slots":2,"Zone":"b","tapes":3,"Nothing":null}}`)
	want := bourse.Requirements{"slots": {Count: 2}, "zone": {Label: "b"}, "tapes": {Count: 3}}
	if diff := cmp.Diff(want, s.lastOrder(t).Config.Requirements); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`{"Slots":"many"}`, `{"Zone":{}}`, `{"Tape Drives":1}`, `{"Slots":1,"slots":2}`, `{"Region":7}`, `[]`} {
		if rec := s.call(t, http.MethodPost, schedulePath, `{"Task":"inc","Requirements":`+bad+`}`); rec.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, rec.Code, rec.Body)
		}
	}
}
