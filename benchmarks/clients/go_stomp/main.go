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
	body := []byte(strings.Repeat("x", 256))
	return func(count int) {
		for start := 0; start < count; start += batch {
			transaction := conn.Begin()
			for i := start; i < count && i < start+batch; i++ {
				check(transaction.Send(queue, "", body))
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

var plain = sending(func(conn *stomp.Conn, body []byte, _ int) {
	check(conn.Send(queue, "", body))
})

var actions = map[string]action{
	"receive": receiving(stomp.AckAuto, func(*stomp.Conn, *stomp.Message) {}),
	"receive-headers": receiving(stomp.AckAuto, func(_ *stomp.Conn, message *stomp.Message) {
		_, _ = message.Header.Get("message-id"), message.Header.Get("priority")
	}),
	"receive-ack": receiving(stomp.AckClientIndividual, func(conn *stomp.Conn, message *stomp.Message) {
		check(conn.Ack(message))
	}),
	"iterate": receiving(stomp.AckAuto, func(*stomp.Conn, *stomp.Message) {}),
	"send":    plain,
	"send-differing": sending(func(conn *stomp.Conn, body []byte, number int) {
		check(conn.Send(queue, "", body, stomp.SendOpt.Header("number", strconv.Itoa(number))))
	}),
	"send-batch":       plain, // it has no batch
	"send-transaction": transactions,
	"send-receipts": sending(func(conn *stomp.Conn, body []byte, _ int) {
		check(conn.Send(queue, "", body, stomp.SendOpt.Receipt)) // one at a time
	}),
	"latency": latency,
}

func seconds(t syscall.Timeval) float64 {
	return float64(t.Sec) + float64(t.Usec)/1e6
}

func cpu() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return seconds(used.Utime) + seconds(used.Stime)
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
		before := cpu()
		run(count)
		after := cpu()
		answer(map[string]any{
			"value": 1e6 * (after - before) / float64(count),
			"rate":  float64(count) / time.Since(began).Seconds(),
			"peak":  peak(),
		})
	}
}
