// One session with the core, as docs/protocol.md describes it: lanes with numbers and acknowledgements, heartbeats, and
// going on after a broken connection.
//
// Not here: what this resource manager wants (main.go).
package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log"
	"time"
)

const protocol = "YSH1"

// answerMax is how long the core may take to let somebody in.
const answerMax = 30 * time.Second

type header struct {
	kind, rm, partition, session string
	seq, ack                     int64
	ref                          string
	life                         int64
}

func (h header) packed() []byte {
	return pack(list{h.kind, h.rm, h.partition, h.session, h.seq, h.ack, int64(0), h.ref, h.life})
}

type kept struct {
	seq  int64
	kind string
	body []byte
}

// lane is both directions with one partition.
type lane struct {
	last, heard, told, life int64 // sent, received and acknowledged numbers; the partition's life
	outbox                  []kept
}

type session struct {
	address, rm, id string
	registration    dict
	open            bool
	resumed         int
	beat, silence   time.Duration
	lanes           map[string]*lane
	partitions      []string
	link            *dealer
	arrived         chan [][]byte
	spoke, heardAt  time.Time
}

func newSession(address, rm string, registration dict) *session {
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		panic(err)
	}
	return &session{
		address: address, rm: rm, id: hex.EncodeToString(random), registration: registration,
		beat: time.Second, silence: answerMax, lanes: map[string]*lane{},
	}
}

func (s *session) lane(partition string) *lane {
	if s.lanes[partition] == nil {
		s.lanes[partition] = &lane{}
	}
	return s.lanes[partition]
}

func (s *session) send(h header, body []byte) {
	h.rm, h.session, s.spoke = s.rm, s.id, time.Now()
	if s.link != nil {
		_ = s.link.send([]byte(protocol), h.packed(), body) // a broken link shows when it is read
	}
}

// connect waits until there is a connection, and says on it who speaks.
func (s *session) connect() {
	for {
		link, err := dial(s.address)
		if err == nil {
			arrived := make(chan [][]byte, 64)
			s.link, s.arrived = link, arrived
			go func() {
				defer close(arrived)
				for {
					frames, err := link.receive()
					if err != nil {
						return
					}
					arrived <- frames
				}
			}()
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.heardAt = time.Now()
	s.enter()
}

// enter says who speaks: the same bytes if it is said again.
func (s *session) enter() {
	if s.partitions == nil {
		s.send(header{kind: "RegisterResourceManager", ref: "register"}, pack(s.registration))
	} else {
		s.resume()
	}
}

func (s *session) resume() {
	received, lives := dict{}, dict{}
	for partition, lane := range s.lanes {
		received[partition], lives[partition] = lane.heard, lane.life
	}
	s.open = false
	s.resumed++
	s.send(header{kind: "Resume", ref: "resume"}, pack(dict{"received": received, "lives": lives}))
}

// command is numbered and kept until it is acknowledged.
func (s *session) command(partition, kind string, body dict) {
	lane := s.lane(partition)
	lane.last++
	one := kept{lane.last, kind, pack(body)}
	lane.outbox = append(lane.outbox, one)
	if s.open {
		s.numbered(partition, one)
	}
}

func (s *session) numbered(partition string, one kept) {
	lane := s.lane(partition)
	s.send(header{kind: one.kind, partition: partition, seq: one.seq, ack: lane.heard, life: lane.life}, one.body)
}

// next gives what the core says next: its header and body. Whatever only concerns the session is dealt with here.
func (s *session) next() (header, dict) {
	for {
		if s.link == nil {
			s.connect()
		}
		select {
		case frames, alive := <-s.arrived:
			if !alive {
				s.link.conn.Close()
				s.link, s.open = nil, false
				continue
			}
			s.heardAt = time.Now()
			if h, body, told := s.heard(frames); told {
				return h, body
			}
		case <-time.After(s.beat):
			s.acknowledge()
			if s.open && time.Since(s.spoke) >= s.beat {
				s.send(header{kind: "Heartbeat"}, pack(dict{}))
			}
			if silent := time.Since(s.heardAt); silent >= answerMax || (s.open && silent >= s.silence) {
				s.link.conn.Close() // which ends the reading, and so begins a new one
			}
		}
	}
}

func (s *session) heard(frames [][]byte) (header, dict, bool) {
	h, body, err := decode(frames)
	if err != nil {
		log.Fatalf("from the core: %v", err)
	}
	if h.session != s.id && h.kind != "Heartbeat" {
		return h, nil, false
	}
	switch h.kind {
	case "Heartbeat":
		return h, nil, false
	case "Registered":
		s.registered(body)
		return h, body, h.ref == "register"
	case "ResumeWanted", "Goodbye":
		s.resume()
		return h, nil, false
	case "Refused":
		return h, body, s.refused(h, body)
	case "PartitionRestarted":
		if h.life <= s.lane(h.partition).life {
			return h, nil, false
		}
		s.lanes[h.partition] = &lane{life: h.life}
		return h, body, true
	case "Left":
		return h, body, true
	}
	return h, body, s.numberedNews(h)
}

// refused says whether this is for the resource manager to know.
func (s *session) refused(h header, body dict) bool {
	entering := h.ref == "register" || h.ref == "resume"
	switch code := body["code"]; {
	case entering && (code == "busy" || code == "flood"):
		time.Sleep(time.Second)
		s.enter()
		return false
	case entering:
		log.Fatalf("refused: %v", body)
	case code == "gap" || code == "window" || code == "unknown-session":
		if s.open {
			s.resume()
		}
		return false
	}
	return true
}

func (s *session) registered(body dict) {
	if s.open {
		return // asked for twice, answered twice
	}
	if milliseconds, told := body["silenceMilliSeconds"].(int64); told && milliseconds > 0 {
		s.silence = time.Duration(milliseconds) * time.Millisecond
	}
	if milliseconds, told := body["heartbeatMilliSeconds"].(int64); told && milliseconds > 0 {
		s.beat = time.Duration(milliseconds) * time.Millisecond
	}
	s.partitions = []string{}
	for _, name := range body["partitions"].(list) {
		s.partitions = append(s.partitions, name.(string))
	}
	s.open = true
	for partition, lane := range s.lanes {
		for _, one := range lane.outbox {
			s.numbered(partition, one)
		}
	}
}

// numberedNews says whether this is the next news of its lane; what was seen is acknowledged again, a gap is mended.
func (s *session) numberedNews(h header) bool {
	lane := s.lane(h.partition)
	if h.life != lane.life {
		return false
	}
	for len(lane.outbox) > 0 && lane.outbox[0].seq <= h.ack {
		lane.outbox = lane.outbox[1:]
	}
	switch {
	case h.seq == 0:
		return h.kind != "Received"
	case h.seq <= lane.heard:
		lane.told = lane.heard - 1
		return false
	case h.seq > lane.heard+1:
		if s.open {
			s.resume()
		}
		return false
	}
	lane.heard = h.seq
	if lane.heard-lane.told >= 64 {
		defer s.acknowledge()
	}
	return true
}

func (s *session) acknowledge() {
	if !s.open {
		return
	}
	for partition, lane := range s.lanes {
		if lane.told < lane.heard {
			lane.told = lane.heard
			s.send(header{kind: "Ack", partition: partition, ack: lane.heard, life: lane.life}, pack(dict{}))
		}
	}
}

func decode(frames [][]byte) (header, dict, error) {
	if len(frames) != 3 || string(frames[0]) != protocol {
		return header{}, nil, fmt.Errorf("expected %s and two more frames, got %q", protocol, frames)
	}
	packed, err := unpack(frames[1])
	if err != nil {
		return header{}, nil, err
	}
	parts, isList := packed.(list)
	if !isList || len(parts) == 0 {
		return header{}, nil, fmt.Errorf("the header is no array: %v", packed)
	}
	var h header
	texts := []*string{0: &h.kind, 1: &h.rm, 2: &h.partition, 3: &h.session, 7: &h.ref}
	numbers := []*int64{4: &h.seq, 5: &h.ack, 8: &h.life}
	for place, part := range parts {
		if text, ok := part.(string); ok && place < len(texts) && texts[place] != nil {
			*texts[place] = text
		}
		if number, ok := part.(int64); ok && place < len(numbers) && numbers[place] != nil {
			*numbers[place] = number
		}
	}
	body, err := unpack(frames[2])
	if err != nil {
		return h, nil, err
	}
	content, _ := body.(dict)
	return h, content, nil
}
