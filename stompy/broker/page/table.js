// A table of which only the rows that are in view exist, so that a thousand queues cost no more than thirty.

class Table {
  // Columns are { title, value(row), text(row), number, wide, chart(canvas, row), start }; `opened` gets the row chosen.
  constructor(kind, columns, opened) {
    this.kind = kind;
    this.columns = columns;
    this.opened = opened;
    this.sorted = { column: columns[0], down: false };
    this.rows = [];
    this.shown = [];
    this.pool = [];
    this.at = -1;
    this.heads = columns.map((column) => el("div", { role: "columnheader", class: this.kindOf(column) },
      el("button", { type: "button", class: this.kindOf(column), onclick: () => this.sort(column) }, column.title)));
    this.view = el("div", { class: "view", tabindex: "-1", role: "rowgroup", onscroll: () => this.paint() });
    this.space = el("div");
    this.empty = el("p", { class: "empty" }, `No ${kind.toLowerCase()} yet`);
    this.view.append(this.space, this.empty);
    this.filter = el("input", { type: "search", placeholder: `Filter ${kind.toLowerCase()}  ( / )`,
      "aria-label": `Filter ${kind.toLowerCase()}`, oninput: () => this.update(this.rows) });
    this.count = el("span", { class: "quiet" });
    this.box = el("div", { class: `grid ${kind.toLowerCase()}`, role: "grid", tabindex: "0", "aria-label": kind,
      onkeydown: (event) => event.target === this.box && this.key(event) },
    el("div", { class: "row", role: "row" }, ...this.heads), this.view);
    new ResizeObserver(() => this.paint()).observe(this.view);
    this.markSort();
  }

  get height() {
    return narrow.matches ? 44 : 34;
  }

  kindOf(column) {
    return `${column.number ? "number" : ""} ${column.wide ? "wide" : ""}`.trim();
  }

  sort(column) {
    const down = this.sorted.column === column ? !this.sorted.down : Boolean(column.number);
    this.sorted = { column, down };
    this.markSort();
    this.update(this.rows);
  }

  markSort() {
    this.columns.forEach((column, place) => {
      if (column === this.sorted.column) this.heads[place].setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else this.heads[place].removeAttribute("aria-sort");
    });
  }

  update(rows) {
    this.rows = rows;
    const wanted = this.filter.value.trim().toLowerCase();
    const { column, down } = this.sorted;
    const chosen = this.shown[this.at];
    this.shown = wanted ? rows.filter((row) => column0(this, row).toLowerCase().includes(wanted)) : rows.slice();
    const sign = down ? -1 : 1;
    this.shown.sort((one, other) => {
      const [a, b] = [column.value(one), column.value(other)];
      return sign * (a < b ? -1 : a > b ? 1 : 0) || (one.name < other.name ? -1 : 1);
    });
    this.at = chosen ? this.shown.findIndex((row) => row.name === chosen.name) : -1;
    setText(this.count, wanted ? `${grouped.format(this.shown.length)} of ${grouped.format(rows.length)}` : "");
    this.empty.hidden = this.shown.length > 0;
    this.box.setAttribute("aria-rowcount", this.shown.length);
    this.paint();
  }

  paint() {
    const { height } = this;
    this.space.style.height = `${this.shown.length * height}px`;
    const first = Math.max(0, Math.floor(this.view.scrollTop / height) - 2);
    const last = Math.min(this.shown.length, Math.ceil((this.view.scrollTop + this.view.clientHeight) / height) + 2);
    while (this.pool.length < last - first) this.pool.push(this.makeRow());
    this.pool.forEach((line, place) => {
      const row = place < last - first ? this.shown[first + place] : null;
      line.row = row;
      line.box.hidden = !row;
      if (!row) return;
      line.box.style.transform = `translateY(${(first + place) * height}px)`;
      line.box.classList.toggle("chosen", first + place === this.at);
      line.box.setAttribute("aria-selected", String(first + place === this.at));
      line.box.setAttribute("aria-rowindex", first + place + 1);
      this.columns.forEach((column, number) => {
        if (column.chart) column.chart(line.cells[number], row);
        else setText(line.cells[number], column.text ? column.text(row) : String(column.value(row)));
      });
      line.cells[0].title = row.name;
    });
    const chosen = this.at >= first && this.at < last ? this.pool[this.at - first].box.id : "";
    this.box.setAttribute("aria-activedescendant", chosen);
  }

  makeRow() {
    const cells = this.columns.map((column) => column.chart ? el("canvas", { class: "wide", "aria-hidden": "true" })
      : el("div", { role: "gridcell", class: this.kindOf(column) }));
    const line = { row: null, cells };
    line.box = el("div", { id: `${this.kind}-${this.pool.length}`, class: "row", role: "row", onclick: () => this.choose(this.shown.indexOf(line.row)) }, ...cells);
    this.view.append(line.box);
    return line;
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / 40));
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 }[event.key];
    if (step && this.shown.length) {
      event.preventDefault();
      this.at = Math.min(this.shown.length - 1, Math.max(0, this.at + step));
      const { height } = this;
      const top = this.at * height;
      if (top < this.view.scrollTop) this.view.scrollTop = top;
      if (top + height > this.view.scrollTop + this.view.clientHeight) this.view.scrollTop = top + height - this.view.clientHeight;
      this.paint();
    } else if (event.key === "Enter" && this.at >= 0) {
      this.choose(this.at);
    }
  }

  choose(place) {
    this.at = place;
    this.paint();
    if (this.shown[place]) this.opened(this.shown[place]);
  }
}

const column0 = (table, row) => String(table.columns[0].text ? table.columns[0].text(row) : row.name);
