// go-stomp, measured; as clients/worker.py says: a line in says how many messages, a line out what they cost.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
)

const (
	queue = "/queue/bench"
	batch = 1000
)

type feed map[string]any

// A round runs so many messages.
type round func(count int)

type action func(conn *stomp.Conn, f feed) round

func number(f feed, name string, otherwise int) int {
	if value, ok := f[name].(float64); ok {
		return int(value)
	}
	return otherwise
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func order(conn *stomp.Conn, f feed, count int) {
	wanted := feed{"count": count}
	for name, value := range f {
		wanted[name] = value
	}
	body, err := json.Marshal(wanted)
	check(err)
	check(conn.Send("/control/give", "", body))
}

// receiving takes messages from the channels of all subscriptions; the look is the handler.
func receiving(mode stomp.AckMode, look func(conn *stomp.Conn, message *stomp.Message)) action {
	return func(conn *stomp.Conn, f feed) round {
		subscriptions := number(f, "subscriptions", 1)
		came := make(chan struct{})
		shares := make([]chan int, subscriptions)
		for i := range shares {
			subscription, err := conn.Subscribe(fmt.Sprintf("/control/%d", i), mode)
			check(err)
			share := make(chan int)
			shares[i] = share
			go func() {
				for count := range share {
					for ; count > 0; count-- {
						message := <-subscription.C
						check(message.Err)
						look(conn, message)
					}
					came <- struct{}{}
				}
			}()
		}
		return func(count int) {
			for i, share := range shares {
				part := count / subscriptions
				if i < count%subscriptions {
					part++
				}
				share <- part
			}
			order(conn, f, count)
			for range shares {
				<-came
			}
		}
	}
}

// kindOf is what a feed wants sent: the content type, the body, and the headers.
func kindOf(f feed) (string, []byte, []func(*frame.Frame) error) {
	text := []byte(strings.Repeat("x", number(f, "body", 256)))
	switch f["kind"] {
	case "typed":
		return "text/plain", text, []func(*frame.Frame) error{stomp.SendOpt.Header("customer", "4711")}
	case "persistent":
		return "", text, []func(*frame.Frame) error{stomp.SendOpt.Header("persistent", "true")}
	}
	return "", text, nil
}

type item struct {
	Sku   string `json:"sku"`
	Count int    `json:"count"`
}

type document struct {
	Order int    `json:"order"`
	Items []item `json:"items"`
}

// written is the document of the Python clients as JSON, made for each message.
func written(value document) []byte {
	body, err := json.Marshal(value)
	check(err)
	return body
}

func orders() document {
	value := document{Order: 4711}
	for i := 0; i < 7; i++ {
		value.Items = append(value.Items, item{fmt.Sprintf("A-%05d", i), i})
	}
	return value
}

// users sends what users send, one call for each message.
func users(conn *stomp.Conn, f feed) round {
	kind, body, options := kindOf(f)
	value, asJson := orders(), f["kind"] == "json"
	if asJson {
		kind = "application/json"
	}
	return func(count int) {
		for i := 0; i < count-1; i++ {
			if asJson {
				body = written(value)
			}
			check(conn.Send(queue, kind, body, options...))
		}
		// What was given to a channel is written when the last has its receipt.
		check(conn.Send(queue, kind, body, stomp.SendOpt.Receipt))
	}
}

func sending(send func(conn *stomp.Conn, body []byte, number int)) action {
	return func(conn *stomp.Conn, f feed) round {
		body := []byte(strings.Repeat("x", number(f, "body", 256)))
		return func(count int) {
			for i := 0; i < count-1; i++ {
				send(conn, body, i)
			}
			// What was given to a channel is written when the last has its receipt.
			check(conn.Send(queue, "", body, stomp.SendOpt.Receipt))
		}
	}
}

func transactions(conn *stomp.Conn, f feed) round {
	kind, body, options := kindOf(f)
	return func(count int) {
		for start := 0; start < count; start += batch {
			transaction := conn.Begin()
			for i := start; i < count && i < start+batch; i++ {
				check(transaction.Send(queue, kind, body, options...))
			}
			check(transaction.Commit())
		}
		check(conn.Send(queue, "", body, stomp.SendOpt.Receipt))
	}
}

func latency(conn *stomp.Conn, f feed) round {
	body := []byte(strings.Repeat("x", 256))
	subscription, err := conn.Subscribe("/control/0", stomp.AckAuto)
	check(err)
	return func(count int) {
		for i := 0; i < count; i++ {
			check(conn.Send("/control/echo", "", body))
			check((<-subscription.C).Err)
		}
	}
}

var actions = map[string]action{
	"receive": receiving(stomp.AckAuto, func(*stomp.Conn, *stomp.Message) {}),
	"receive-headers": receiving(stomp.AckAuto, func(_ *stomp.Conn, message *stomp.Message) {
		_, _ = message.Header.Get("message-id"), message.Header.Get("priority")
	}),
	"receive-ack": receiving(stomp.AckClientIndividual, func(conn *stomp.Conn, message *stomp.Message) {
		check(conn.Ack(message))
	}),
	"iterate": receiving(stomp.AckAuto, func(*stomp.Conn, *stomp.Message) {}),
	"send":    users,
	"send-differing": sending(func(conn *stomp.Conn, body []byte, number int) {
		check(conn.Send(queue, "", body, stomp.SendOpt.Header("number", strconv.Itoa(number))))
	}),
	"send-batch":       users, // it has no batch
	"send-transaction": transactions,
	"send-receipts": sending(func(conn *stomp.Conn, body []byte, _ int) {
		check(conn.Send(queue, "", body, stomp.SendOpt.Receipt)) // one at a time
	}),
	"latency": latency,
}

func seconds(t syscall.Timeval) float64 {
	return float64(t.Sec) + float64(t.Usec)/1e6
}

// cpu is the time of the processor that this process has used: its own, and the system's for it.
func cpu() (user, system float64) {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return seconds(used.Utime), seconds(used.Stime)
}

// peak is the most memory that was resident, 0 where the system does not tell.
func peak() (size int64) {
	status, _ := os.ReadFile("/proc/self/status")
	if _, line, there := strings.Cut(string(status), "VmHWM:"); there {
		_, err := fmt.Sscanf(line, "%d", &size)
		check(err)
	}
	return size * 1024
}

func answer(line any) {
	text, err := json.Marshal(line)
	check(err)
	fmt.Println(string(text))
}

func main() {
	prepare, there := actions[os.Args[1]]
	answer(map[string]bool{"ready": there})
	if !there {
		return
	}
	var f feed
	check(json.Unmarshal([]byte(os.Args[3]), &f))
	conn, err := stomp.Dial("tcp", "127.0.0.1:"+os.Args[2], stomp.ConnOpt.HeartBeat(0, 0))
	check(err)
	run := prepare(conn, f)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		count, err := strconv.Atoi(lines.Text())
		check(err)
		began := time.Now()
		user, system := cpu()
		run(count)
		userAfter, systemAfter := cpu()
		user, system = 1e6*(userAfter-user)/float64(count), 1e6*(systemAfter-system)/float64(count)
		answer(map[string]any{
			"value":  user + system,
			"user":   user,
			"system": system,
			"rate":   float64(count) / time.Since(began).Seconds(),
			"peak":   peak(),
		})
	}
}
