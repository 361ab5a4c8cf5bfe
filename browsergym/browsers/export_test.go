package browsers

// DropSpares closes what was opened ahead, as when nobody comes for long.
func (p *Pool) DropSpares() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, inst := range p.instances {
		inst.dropPrewarmed()
	}
}
