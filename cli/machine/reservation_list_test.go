package machine

import (
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestReservationList(t *testing.T) {
	hold := func(worker bourse.WorkerID, left bourse.Amounts) machinesapi.Hold {
		return machinesapi.Hold{App: "shop", Worker: worker, Remaining: left}
	}
	some := bourse.Amounts{{Resource: "cpu", Amount: 62}, {Resource: "memory", Amount: 256}}
	list := []machinesapi.Reservation{
		{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5-aaaaaa.bbbbbb", ExpiresAt: clitest.Now.Add(55 * time.Second), Holds: []machinesapi.Hold{hold("gru-2", some), hold("gru-1", some)}},
		{ID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P6-cccccc", ExpiresAt: clitest.Now.Add(10 * time.Minute), Holds: []machinesapi.Hold{hold("mad-1", nil)}},
	}
	line.Screens(t, "reservation_list", clitest.Replies(http.StatusOK, list), "reservation", "list")
}
