package gateway_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/pull"
)

func TestSubmitPollClaimRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		begin := time.Now()
		r.want("submit without a poller", r.call("POST", "submit", `{"command": "true"}`), 422, "insufficient_capacity", "no poller is waiting")
		if took := time.Since(begin); took != 0 {
			t.Errorf("the refusal took %s", took)
		}
		jobs := r.later("GET", "jobs", "")
		submitted := r.later("POST", "submit", `{"name": "a", "command": ["echo", "hi"], "env": {"A": "b"}, "cpu": 2, "mem": 64}`)
		job := (<-jobs).json(t)
		if job["name"] != "a" || fmt.Sprint(job["command"]) != "[echo hi]" || !strings.Contains(fmt.Sprint(job["env"]), "A=b") {
			t.Errorf("the poller got %v", job)
		}
		r.want("status of an offer", r.call("GET", "status/a", ""), 200, `"state":"starting"`)
		r.want("the end of an offer", r.call("POST", "release/a", `{"exit_code": 0}`), 409)
		r.want("claim", r.call("POST", "claim/a?by=me", ""), 200, `"a"`)
		r.want("another's claim", r.call("POST", "claim/a?by=you", "", "Bourse-Ticket", ""), 409, "conflict")
		r.want("submit", <-submitted, 200, `"name":"a"`, `"by":"me"`, `"machine":`, `"order":`)
		r.want("status", r.call("GET", "status/a", ""), 200, `"state":"started"`, `"by":"me"`)
		r.want("the same name again", r.call("POST", "submit", `{"name": "a", "command": "true"}`), 409, "already_exists")
		for range 2 {
			r.want("release", r.call("POST", "release/a", `{"exit_code": 3, "output": "hi\n"}`), 200)
		}
		if s := r.settled("a"); s["exit_code"] != 3.0 || s["output"] != "hi\n" || s["by"] != "me" {
			t.Errorf("status %v, want code 3 and the reported output", s)
		}
		r.run("a") // the name of an ended job can be reused
		r.want("release", r.call("POST", "release/a?exit_code=0", "raw\x00\xff output"), 200)
		if s := r.settled("a"); s["exit_code"] != 0.0 || !strings.HasPrefix(s["output"].(string), "raw\x00") {
			t.Errorf("status %v, want code 0 and the output", s)
		}
	})
}

// TestAJobAsAScript checks that a poller can receive a job as a shell script.
func TestAJobAsAScript(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		jobs := r.later("GET", "jobs", "", "Accept", "text/x-shellscript")
		submitted := r.later("POST", "submit", `{"name": "a", "command": "echo hi", "env": {"A": "b c"}}`)
		r.want("jobs", <-jobs, 200, "# job a\n", "export A='b c'\n", "exec 'sh' '-c' 'echo hi'\n")
		r.want("claim", r.call("POST", "claim/a", ""), 200)
		r.want("submit", <-submitted, 200)
		r.want("release", r.call("POST", "release/a", `{"exit_code": 0}`), 200)
	})
}

func TestNobodyClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		jobs := r.later("GET", "jobs", "")
		begin := time.Now()
		r.want("submit", r.call("POST", "submit", `{"name": "a", "command": "true", "timeout": "3s"}`), 422, "deadline")
		if took := time.Since(begin); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("it took %s, want 3 s", took)
		}
		r.want("jobs", <-jobs, 200)
		r.want("a late claim", r.call("POST", "claim/a", ""), 404)
		r.want("status", r.call("GET", "status/a", ""), 404)
	})
}

// TestAClientThatLeaves checks that a job does not run if its client disconnects before the job is claimed.
func TestAClientThatLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		jobs := r.later("GET", "jobs", "")
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan answer, 1)
		go func() { done <- r.callIn(ctx, "POST", "submit", `{"name": "a", "command": "true"}`) }()
		r.want("jobs", <-jobs, 200)
		leave()
		<-done
		synctest.Wait()
		r.want("a late claim", r.call("POST", "claim/a", ""), 404)
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.want("of nothing", r.call("POST", "cancel/a", ""), 404)
		jobs := r.later("GET", "jobs", "")
		submitted := r.later("POST", "submit", `{"name": "early", "command": "true"}`)
		<-jobs
		r.want("before the claim", r.call("POST", "cancel/early", ""), 200)
		r.want("submit", <-submitted, 409, "canceled before")
		r.want("a late claim", r.call("POST", "claim/early", ""), 404)
		r.settled("early")
		r.want("cancel an ended job", r.call("POST", "cancel/early", ""), 200)

		r.run("late")
		told := r.later("GET", "cancellations?job=late", "")
		all := r.later("GET", "cancellations", "")
		r.want("of what runs", r.call("POST", "cancel/late", ""), 200)
		r.want("the poller", <-told, 200, `"names":["late"]`)
		a := <-all
		r.want("a caller that asks for all jobs", a, 200, `"names":["late"]`)
		r.want("a caller that has received the cancellation", r.call("GET", fmt.Sprintf("cancellations?wait=1s&after=%v", a.json(t)["next"]), ""), 204)
		r.want("release", r.call("POST", "release/late", `{"exit_code": 143}`), 200)
		if s := r.settled("late"); s["exit_code"] != 143.0 {
			t.Errorf("status %v, want code 143", s)
		}

		r.run("deaf")
		r.want("cancel a job whose poller is unresponsive", r.call("POST", "cancel/deaf", ""), 200)
		if s := r.settled("deaf"); s["exit_code"] != -1.0 || !strings.Contains(s["error"].(string), "after a cancellation") {
			t.Errorf("status %v, want the job to count as lost", s)
		}
		r.want("a late report", r.call("POST", "release/deaf", `{"exit_code": 0}`), 409)
		r.want("the poller learns of the cancellation", r.call("GET", "cancellations?job=deaf", ""), 200, "deaf")
	})
}

func TestHosts(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.want("assigned to nobody", r.call("GET", "assigned?host=h", ""), 404)
		r.want("register", r.call("POST", "register", `{"name": "h", "cpu": 2, "mem": 1024, "disk": 4096}`), 200, `"h"`)
		r.want("register without a name", r.call("POST", "register", `{"cpu": 0.5, "mem": 64}`), 200, `"host-`)
		jobs := r.later("GET", "assigned?host=h", "")
		r.want("too large", r.call("POST", "submit", `{"command": "true", "cpu": 3}`), 422, "no poller has room")
		r.want("too much disk", r.call("POST", "submit", `{"command": "true", "disk": 4097}`), 422, "no poller has room")
		submitted := r.later("POST", "submit", `{"name": "a", "command": "true", "cpu": 2, "disk": 4096}`)
		r.want("assigned", <-jobs, 200, `"name":"a"`)
		r.want("started by a stranger", r.call("POST", "started/a?host=x", ""), 404)
		for range 2 {
			r.want("started", r.call("POST", "started/a?host=h", ""), 200)
		}
		r.want("submit", <-submitted, 200, `"host":"h"`)
		jobs = r.later("GET", "assigned?host=h", "")
		r.want("no capacity remains", r.call("POST", "submit", `{"command": "true"}`), 422, "no poller has room")
		r.want("stopped without a code", r.call("POST", "stopped/a", `{}`), 400)
		r.want("stopped", r.call("POST", "stopped/a", `{"exit_code": 0}`), 200)
		r.settled("a")
		submitted = r.later("POST", "submit", `{"name": "b", "command": "true"}`)
		r.want("assigned", <-jobs, 200, `"name":"b"`)
		r.want("started", r.call("POST", "started/b?host=h", ""), 200)
		<-submitted
		r.want("register again, empty-handed", r.call("POST", "register", `{"name": "h", "cpu": 2, "mem": 1024, "running": []}`), 200)
		if s := r.settled("b"); s["exit_code"] != -1.0 {
			t.Errorf("status %v, want the job to count as lost", s)
		}
	})
}

// TestAJobOfTheExchange checks that jobs ordered through brokers are handed out in the same
// way, and that a returned job is offered again according to its restart policy.
func TestAJobOfTheExchange(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		order := bourse.Order{
			ID: bourse.NewOrderID(), App: bourse.DefaultApp(bourse.App{}), Name: "x", Regions: []bourse.Choice{{"gru"}},
			Config: bourse.Config{Image: bourse.ImagePull, Init: bourse.Init{Exec: []string{"true"}}},
		}
		if err := order.Config.Normalize(); err != nil {
			t.Fatal(err)
		}
		jobs := r.later("GET", "jobs", "")
		filled := make(chan *bourse.Fill, 1)
		go func() {
			fill, refusal, err := r.worker.Local().Claim(t.Context(), &bourse.Claim{Order: order})
			if err != nil || refusal != nil {
				t.Errorf("refusal %+v, error %v", refusal, err)
			}
			filled <- fill
		}()
		r.want("jobs", <-jobs, 200, `"name":"x"`)
		r.want("claim", r.call("POST", "claim/x", ""), 200)
		m := (<-filled).Machine
		jobs = r.later("GET", "jobs", "")
		r.want("release", r.call("POST", "release/x", ""), 200)
		r.want("jobs", <-jobs, 200, `"name":"x"`)
		r.want("claim", r.call("POST", "claim/x", ""), 200)
		r.want("release", r.call("POST", "release/x", `{"exit_code": 0}`), 200)
		r.settled("x")
		time.Sleep(time.Hour)
		if now, err := r.worker.Local().Named(t.Context(), bourse.DefaultApp(bourse.App{}), "x"); err != nil || now.ID != m.ID || now.Boot.Number != 2 {
			t.Errorf("an hour later: %+v, %v; want the machine with its second boot: the gateway must not destroy it", now, err)
		}
		r.want("a job with its name", r.call("POST", "submit", `{"name": "x", "command": "true"}`), 409)
	})
}

// TestEndedJobsAreDestroyed checks that submitted jobs are destroyed some time after their end.
func TestEndedJobsAreDestroyed(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.run("a")
		r.run("b")
		r.want("release", r.call("POST", "release/a", `{"exit_code": 0}`), 200)
		r.settled("a")
		watching := r.later("GET", "cancellations?job=b&wait=1m", "")
		time.Sleep(9 * time.Minute)
		<-watching
		r.want("a, 9 minutes later", r.call("GET", "status/a", ""), 200)
		time.Sleep(2*time.Minute + time.Second) // at the first check after ten minutes, the job may not have expired yet
		r.want("a, 11 minutes later", r.call("GET", "status/a", ""), 404)
		r.want("the lost job b, later", r.call("GET", "status/b", ""), 200)
	})
}

func TestWaitsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for path, want := range map[string]time.Duration{
			"jobs": 30 * time.Second, "jobs?wait=1m": time.Minute, "jobs?wait=0s": 0, "cancellations?wait=10ms": 10 * time.Millisecond,
		} {
			begin := time.Now()
			r.want(path, r.call("GET", path, ""), 204)
			if took := time.Since(begin); took != want {
				t.Errorf("%s took %s, want %s", path, took, want)
			}
		}
		jobs := r.later("GET", "jobs", "")
		r.g.Leave()
		r.want("when the gateway stops", <-jobs, 204)
		r.want("after that", r.call("GET", "jobs", ""), 204)
	})
}

func TestHostileRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.run("a")
		long := strings.Repeat("a", 100_000)
		for _, c := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", "jobs?wait=1h", "", 400},
			{"GET", "jobs?wait=-1s", "", 400},
			{"GET", "jobs?wait=soon", "", 400},
			{"GET", "assigned", "", 400},
			{"GET", "assigned?host=../x", "", 404},
			{"GET", "cancellations?after=-1", "", 400},
			// All parameters name the same job, so the call is valid and waits.
			{"GET", "cancellations?" + strings.Repeat("job=a&", 10), "", 0},
			{"POST", "claim/%2e%2e%2fa", "", 404},
			{"POST", "claim/" + url.PathEscape("a\nb"), "", 404},
			{"POST", "claim/A", "", 404},
			{"POST", "claim/" + long, "", 404},
			{"POST", "claim/a?by=" + long, "", 400},
			{"POST", "release/nobody", `{"exit_code": 0}`, 404},
			{"POST", "release/a", `{"exit_code": "0"}`, 400},
			{"POST", "release/a", `{"exit_code": -1}`, 400},
			{"POST", "release/a", `{"exit_code": 256}`, 400},
			{"POST", "release/a", `{"exit_code": 1e99}`, 400},
			{"POST", "release/a", `not JSON`, 400},
			{"POST", "release/a?exit_code=x", "", 400},
			{"POST", "release/a?exit_code=-1", "", 400},
			{"POST", "started/a", "", 400},
			{"POST", "stopped/a", "", 400},
			{"POST", "register", "", 400},
			{"POST", "register", `[]`, 400},
			{"POST", "register", `{"name": "h"}`, 400},
			{"POST", "register", `{"name": "H!", "cpu": 1, "mem": 1}`, 400},
			{"POST", "register", `{"name": "h", "cpu": -1, "mem": 1}`, 400},
			{"POST", "register", `{"name": "h", "cpu": 1e300, "mem": 1}`, 400},
			{"POST", "register", `{"name": "h", "cpu": 1, "mem": 9223372036854775807}`, 400},
			{"POST", "submit", "", 400},
			{"POST", "submit", `{}`, 400},
			{"POST", "submit", `{"command": ""}`, 400},
			{"POST", "submit", `{"command": []}`, 400},
			{"POST", "submit", `{"command": {"a": 1}}`, 400},
			{"POST", "submit", `{"command": "a\u0000b"}`, 400},
			{"POST", "submit", `{"command": "x", "name": "../a"}`, 400},
			{"POST", "submit", `{"command": "x", "name": "` + long + `"}`, 400},
			{"POST", "submit", `{"command": "x", "cpu": -1}`, 400},
			{"POST", "submit", `{"command": "x", "cpu": 1.5}`, 400},
			{"POST", "submit", `{"command": "x", "mem": -1}`, 400},
			{"POST", "submit", `{"command": "x", "disk": -1}`, 400},
			{"POST", "submit", `{"command": "x", "disk": 9223372036854775807}`, 400},
			{"POST", "submit", `{"command": "x", "timeout": "-1s"}`, 400},
			{"POST", "submit", `{"command": "x", "timeout": "1h"}`, 400},
			{"POST", "submit", `{"command": "x", "env": {"A=B": "c"}}`, 400},
			{"POST", "submit", strings.Repeat("[", 100_000), 400},
			{"POST", "submit", `{"command": "` + strings.Repeat("x", 9<<20) + `"}`, 400},
			{"POST", "release/a", `{"output": "` + strings.Repeat("x", 9<<20) + `"}`, 400},
			{"GET", "status/A", "", 404},
			{"GET", "claim/a", "", 405},
			{"GET", "elsewhere", "", 404},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			a := r.callIn(ctx, c.method, c.path, c.body)
			cancel()
			if c.want != 0 && a.status != c.want {
				t.Errorf("%s %.60s %.60s: status %d, want %d: %.200s", c.method, c.path, c.body, a.status, c.want, a.text)
			}
		}
		r.want("a's end, after all that", r.call("POST", "release/a", `{"exit_code": 0, "output": "`+strings.Repeat("x", pull.MaxOutput/2)+`"}`), 200)
	})
}
