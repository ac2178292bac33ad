package bourse_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func warmOrder(change func(*bourse.Order)) *bourse.Order {
	o := &bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: "web"}, Regions: []bourse.Choice{{"gru"}},
		Task: &bourse.TaskOrder{Name: "inc", Payload: []byte("p"), Timeout: bourse.Duration(time.Second)},
	}
	change(o)
	return o
}

func coldOrder(change func(*bourse.Order)) *bourse.Order {
	guest := bourse.Guest{}.WithDefaults()
	return warmOrder(func(o *bourse.Order) {
		o.Task.Name = ""
		o.Config = bourse.Config{
			Image: "host", Guest: &guest, Init: bourse.Init{Exec: []string{"cat"}}, AutoDestroy: true, Restart: &bourse.Restart{Policy: bourse.RestartNo},
		}
		change(o)
	})
}

func TestOrdersForWork(t *testing.T) {
	for name, c := range map[string]struct {
		order *bourse.Order
		want  string // expected text of the error; "": no error
	}{
		"warm":              {warmOrder(func(*bourse.Order) {}), ""},
		"cold":              {coldOrder(func(*bourse.Order) {}), ""},
		"nothing to do":     {warmOrder(func(o *bourse.Order) { o.Task.Payload = nil }), ""},
		"the longest":       {warmOrder(func(o *bourse.Order) { o.Task.Timeout = bourse.Duration(bourse.MaxTaskTimeout) }), ""},
		"too long":          {warmOrder(func(o *bourse.Order) { o.Task.Timeout++; o.Task.Timeout += bourse.Duration(bourse.MaxTaskTimeout) }), "timeout"},
		"no time":           {warmOrder(func(o *bourse.Order) { o.Task.Timeout = 0 }), "timeout"},
		"too large":         {warmOrder(func(o *bourse.Order) { o.Task.Payload = make([]byte, bourse.MaxPayload+1) }), "payload"},
		"a name with dots":  {warmOrder(func(o *bourse.Order) { o.Task.Name = "a.b" }), "task"},
		"a hostile type":    {warmOrder(func(o *bourse.Order) { o.Task.Type = "text/plain\r\nX: y" }), "type"},
		"warm with image":   {warmOrder(func(o *bourse.Order) { o.Config.Image = "host" }), "either"},
		"raced":             {warmOrder(func(o *bourse.Order) { o.Race = 2 }), "race"},
		"for a volume, too": {warmOrder(func(o *bourse.Order) { o.Volume = &bourse.VolumeOrder{} }), "volume"},
		"cold and stays":    {coldOrder(func(o *bourse.Order) { o.Config.AutoDestroy = false }), "auto_destroy"},
		"cold and restarts": {coldOrder(func(o *bourse.Order) { o.Config.Restart = nil }), "restart policy"},
		"cold and warm":     {coldOrder(func(o *bourse.Order) { o.Config.Task = &bourse.TaskConfig{Name: "x"} }), "config.task"},
		"cold, no command":  {coldOrder(func(o *bourse.Order) { o.Config.Init = bourse.Init{} }), "command"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.order.Validate()
			if c.want == "" && err != nil || c.want != "" && (bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if err == nil && c.order.Deadline() <= time.Duration(c.order.Task.Timeout) {
				t.Errorf("got deadline %s for a task with timeout %s, which leaves the worker no time to report the timeout", c.order.Deadline(), time.Duration(c.order.Task.Timeout))
			}
		})
	}
}

func TestTaskConfigs(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"inc"}`: "", `{"name":"inc","concurrency":10000,"port":65535,"timeout":"5m"}`: "",
		`{"name":"inc","protocol":"http"}`: "", `{"name":"inc","protocol":"frames"}`: "", `{"name":"inc","protocol":"HTTP"}`: "protocol",
		`{}`: "task", `{"name":"a b"}`: "task", `{"name":"*"}`: "task", `{"name":"inc","concurrency":-1}`: "concurrency",
		`{"name":"inc","concurrency":10001}`: "concurrency", `{"name":"inc","port":65536}`: "port", `{"name":"inc","timeout":"6m"}`: "timeout",
	} {
		var c bourse.TaskConfig
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestAskedLeavesThePayload checks that requests for quotes do not contain the payload, and that
// the order itself keeps it.
func TestAskedLeavesThePayload(t *testing.T) {
	o := warmOrder(func(o *bourse.Order) { o.Task.Output = func([]byte) {} })
	asked := o.ForQuote()
	if asked.Task.Payload != nil || asked.Task.Output != nil || asked.Task.Name != "inc" || string(o.Task.Payload) != "p" {
		t.Errorf("got task %+v in the request for a quote, and %+v in the order", asked.Task, o.Task)
	}
}

// TestTaskSum checks that different work has different checksums, and that an order that cannot be
// repeated has none.
func TestTaskSum(t *testing.T) {
	order := func(change func(*bourse.Order)) string {
		o := bourse.Order{
			Config:  bourse.Config{Image: "host", Init: bourse.Init{Cmd: []string{"cat", "a"}}},
			Task:    &bourse.TaskOrder{Payload: []byte("one"), Type: "text/plain"},
			Options: bourse.Options{HasChosenID: true},
		}
		change(&o)
		return string(o.TaskSum())
	}
	same := order(func(o *bourse.Order) { o.ID, o.Try, o.Task.Timeout = "x", "y", 3 })
	seen := map[string]string{same: "nothing"}
	for name, change := range map[string]func(*bourse.Order){
		"payload":         func(o *bourse.Order) { o.Task.Payload = []byte("two") },
		"no payload":      func(o *bourse.Order) { o.Task.Payload = nil },
		"type":            func(o *bourse.Order) { o.Task.Type = "" },
		"task":            func(o *bourse.Order) { o.Task.Name = "a" },
		"image":           func(o *bourse.Order) { o.Config.Image = "pull" },
		"command":         func(o *bourse.Order) { o.Config.Init.Cmd = []string{"cat", "b"} },
		"one word of two": func(o *bourse.Order) { o.Config.Init.Cmd = []string{"cata"} },
	} {
		sum := order(change)
		if other, taken := seen[sum]; taken {
			t.Errorf("changing %q and changing %q produced the same checksum", name, other)
		}
		seen[sum] = name
	}
	if order(func(*bourse.Order) {}) != same {
		t.Error("the same work got a different checksum")
	}
	if got := order(func(o *bourse.Order) { o.HasChosenID = false }); got != "" {
		t.Errorf("an order that cannot be repeated: got checksum %x, want none", got)
	}
}
